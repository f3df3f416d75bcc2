"""Actions: bounds, composed actions and masks of what is legal."""
