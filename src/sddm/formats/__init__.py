"""Files as arrays, text and tables, both ways; Bayesian networks; collections of tunes; music; pictures."""
