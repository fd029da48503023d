"""What runs came to: tables and plots."""
