"""How is an uploaded run read? In a child process with limits, watched by a supervisor in the server, from a queue that outlives both."""
