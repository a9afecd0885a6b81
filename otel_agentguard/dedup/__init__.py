"""Never run twice what need not run twice, never serve what is no longer true."""
