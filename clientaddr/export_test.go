package clientaddr

// MaxHops is the largest number of elements of the header that are read.
const MaxHops = maxHops
