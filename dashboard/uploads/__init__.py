"""How do files get here? Resumable uploads, and the run that is made of them."""
