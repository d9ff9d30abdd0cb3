"""Math in elementary operations: functions, casts, polynomials, exact float formats."""
