"""Storage of bytes on local disks, in memory and in object stores, with put-if-absent."""
