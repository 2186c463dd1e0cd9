package redisstore

import (
	"strings"

	"github.com/weirproject/weir"
)

// slots is how many hash slots a Redis Cluster has.
const slots = 16384

// Slot is the hash slot of a key in a Redis Cluster: the CRC16 of the key, or of the text
// between its first { and the next }, if that is not empty.
func Slot(key string) uint16 {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if length := strings.IndexByte(key[open+1:], '}'); length > 0 {
			key = key[open+1 : open+1+length]
		}
	}
	var crc uint16
	for i := range len(key) {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^key[i]]
	}
	return crc % slots
}

// Places is the number of values of Place.
const Places = 64

// Place is the part of a Cluster's slots, from 0 to Places - 1, of a request: slots in a row,
// which mostly belong to one node. It is for coalesce.WithPlaces. Of several claims it takes the
// last, since the first ones are those that many requests share, such as of a whole site.
func Place(claims []weir.Claim) int {
	return int(Slot(claims[len(claims)-1].Key)) / (slots / Places)
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
