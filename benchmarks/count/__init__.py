"""What lowered programs execute and move, counted from their text, beside what the expressions need."""
