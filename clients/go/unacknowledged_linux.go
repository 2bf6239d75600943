package dejaqueue

import "syscall"

// tcpUserTimeout is TCP_USER_TIMEOUT, which package syscall does not name.
const tcpUserTimeout = 0x12

// boundUnacknowledged has a connection break when the other end does not acknowledge what was sent: a
// network that lost it says nothing, and the system alone would try for a quarter of an hour.
func boundUnacknowledged(_, _ string, connection syscall.RawConn) error {
	return connection.Control(func(descriptor uintptr) {
		_ = syscall.SetsockoptInt(
			int(descriptor), syscall.IPPROTO_TCP, tcpUserTimeout, int(laneWriteMost.Milliseconds()),
		)
	})
}
