"""Files as arrays, text and tables, both ways."""
