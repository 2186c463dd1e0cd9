// Package redisslot computes hash slots of a Redis Cluster.
package redisslot

import "strings"

// Count is how many hash slots a Redis Cluster has.
const Count = 16384

// Of is the hash slot of a key in a Redis Cluster: the CRC16 of the key, or of the text
// between its first { and the next }, if that is not empty.
func Of(key string) uint16 {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if length := strings.IndexByte(key[open+1:], '}'); length > 0 {
			key = key[open+1 : open+1+length]
		}
	}
	var crc uint16
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc % Count
}

// crcTable is CRC16-CCITT (XMODEM): polynomial 0x1021, most significant bit first.
var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
		table[i] = crc
	}
	return table
}()
