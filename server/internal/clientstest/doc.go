// Package clientstest has the tests of the clients in other languages, in clients: each runs beside the built server.
package clientstest
