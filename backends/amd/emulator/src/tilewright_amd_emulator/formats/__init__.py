"""Number formats: arithmetic and conversions as the hardware performs them."""
