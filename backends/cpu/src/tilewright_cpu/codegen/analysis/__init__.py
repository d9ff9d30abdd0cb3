"""Facts about tiles that code generation asks for: liveness, strides along each axis, contiguity, and masks as bounds."""
