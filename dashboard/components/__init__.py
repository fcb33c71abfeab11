"""What are pages made of? Cards, figures, tables, controls and states; none of them knows a page."""
