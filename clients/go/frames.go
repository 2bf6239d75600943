package dejaqueue

// Frames: the small fixed messages beside the record batches, as docs/wire.md has them.
// Bytes in, values out, without a socket.

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
)

const (
	wireVersion = 1

	frameReply    = 1
	frameCredit   = 2
	frameSettle   = 3
	framePing     = 4
	framePong     = 5
	frameDelivery = 6
	frameClose    = 7
	frameError    = 8

	hasIDs      = 1
	hasStatuses = 2
	hasError    = 4

	opAck    = 1
	opNack   = 2
	opExtend = 3

	fateDead    = 1
	fateRelease = 2

	headBytes = 8
)

// Status says what happened to one row of a batch. A number without a name is a later broker's.
type Status uint8

// The statuses that docs/reference/errors.md lists.
const (
	OK        Status = 0
	NotFound  Status = 1
	Leased    Status = 2
	LeaseLost Status = 3
	Duplicate Status = 4
	Kept      Status = 5
	Changed   Status = 6
)

var statusNames = []string{"OK", "NOT_FOUND", "LEASED", "LEASE_LOST", "DUPLICATE", "KEPT", "CHANGED"}

// String is the name of the status, or its number.
func (s Status) String() string {
	if int(s) < len(statusNames) {
		return statusNames[s]
	}
	return fmt.Sprintf("STATUS_%d", uint8(s))
}

type reply struct {
	number   uint32
	rows     int
	ids      []int64
	statuses []Status
	err      *Error
}

type settle struct {
	op         uint8
	fate       uint8
	number     uint32
	partition  uint32
	leaseID    int64
	argumentMS int64
	ids        []int64
	attempts   []uint16
	leaseIDs   []int64
	reason     string
}

type ping struct {
	number                          uint32
	clientUS, offsetUS, uncertainty int64
}

type pong struct {
	number             uint32
	clientUS, brokerUS int64
}

type delivery struct {
	partition, rows           uint32
	leaseID, leaseEndMS, sent int64
}

func head(kind uint8, number uint32) []byte {
	frame := []byte{wireVersion, kind, 0, 0}
	return binary.LittleEndian.AppendUint32(frame, number)
}

func encodeCredit(rows int) []byte {
	frame := binary.LittleEndian.AppendUint32(head(frameCredit, 0), uint32(rows))
	return binary.LittleEndian.AppendUint32(frame, 0)
}

func encodeClose() []byte { return head(frameClose, 0) }

func encodePing(p ping) []byte {
	frame := head(framePing, p.number)
	for _, value := range []int64{p.clientUS, p.offsetUS, p.uncertainty} {
		frame = binary.LittleEndian.AppendUint64(frame, uint64(value))
	}
	return frame
}

func encodeSettle(s settle) []byte {
	order := binary.LittleEndian
	frame := append(head(frameSettle, s.number), s.op, s.fate)
	frame = order.AppendUint16(frame, uint16(len(s.reason)))
	frame = order.AppendUint32(frame, s.partition)
	frame = order.AppendUint64(frame, uint64(s.leaseID))
	frame = order.AppendUint64(frame, uint64(s.argumentMS))
	frame = order.AppendUint32(frame, uint32(len(s.ids)))
	frame = order.AppendUint32(frame, uint32(len(s.leaseIDs)))
	for _, id := range s.ids {
		frame = order.AppendUint64(frame, uint64(id))
	}
	for _, attempt := range s.attempts {
		frame = order.AppendUint16(frame, attempt)
	}
	for _, id := range s.leaseIDs {
		frame = order.AppendUint64(frame, uint64(id))
	}
	return append(frame, s.reason...)
}

// ended is a CLOSE: nothing more comes.
type ended struct{}

// decode reads a frame that a broker may send: *reply, *pong, *delivery, *Error (of an ERROR),
// ended, or nil for a type that this client does not know. Bytes behind the last field are a
// later broker's.
func decode(content []byte) (any, error) {
	if len(content) < headBytes || content[0] != wireVersion {
		return nil, broken("a frame of version %d, got: % x", wireVersion, content[:min(len(content), 16)])
	}
	order := binary.LittleEndian
	flags, number := order.Uint16(content[2:]), order.Uint32(content[4:])
	body := content[headBytes:]
	need := map[uint8]int{frameReply: 16, framePong: 16, frameDelivery: 32}[content[1]]
	if len(body) < need {
		return nil, broken("a frame of type %d with %d bytes, got: %d", content[1], need, len(body))
	}
	switch content[1] {
	case frameReply:
		return decodeReply(body, flags, number)
	case framePong:
		return &pong{number, int64(order.Uint64(body)), int64(order.Uint64(body[8:]))}, nil
	case frameDelivery:
		return &delivery{
			order.Uint32(body), order.Uint32(body[4:]), int64(order.Uint64(body[8:])),
			int64(order.Uint64(body[16:])), int64(order.Uint64(body[24:])),
		}, nil
	case frameClose:
		return ended{}, nil
	case frameError:
		return errorOfJSON(body)
	}
	return nil, nil
}

func decodeReply(body []byte, flags uint16, number uint32) (any, error) {
	order := binary.LittleEndian
	answer := &reply{number: number, rows: int(order.Uint32(body))}
	firstID, rest := int64(order.Uint64(body[8:])), body[16:]
	if flags&hasError != 0 {
		wrong, err := errorOfJSON(rest)
		if err != nil {
			return nil, err
		}
		answer.err = wrong
		return answer, nil
	}
	need := 0
	if flags&hasIDs != 0 {
		need += 8 * answer.rows
	}
	if flags&hasStatuses != 0 {
		need += answer.rows
	}
	if len(rest) < need {
		return nil, broken("a REPLY of %d rows, got: %d bytes", answer.rows, len(rest))
	}
	if flags&hasIDs != 0 {
		answer.ids = make([]int64, answer.rows)
		for row := range answer.ids {
			answer.ids[row] = int64(order.Uint64(rest[8*row:]))
		}
		rest = rest[8*answer.rows:]
	} else if firstID >= 0 {
		answer.ids = make([]int64, answer.rows)
		for row := range answer.ids {
			answer.ids[row] = firstID + int64(row)
		}
	}
	if flags&hasStatuses != 0 {
		answer.statuses = make([]Status, answer.rows)
		for row := range answer.statuses {
			answer.statuses[row] = Status(rest[row])
		}
	}
	return answer, nil
}

// statusesOf has a status for each of so many rows; one alone is true of all of them.
func (r *reply) statusesOf(rows int) []Status {
	found := make([]Status, rows)
	for row := range found {
		found[row] = r.statusOf(row, rows)
	}
	return found
}

func (r *reply) statusOf(row, rows int) Status {
	switch {
	case len(r.statuses) == rows:
		return r.statuses[row]
	case len(r.statuses) > 0:
		return r.statuses[0]
	}
	return OK
}

// errorOfJSON reads the first JSON value: gRPC may have written words of its own behind it.
func errorOfJSON(content []byte) (*Error, error) {
	found := &Error{}
	if err := json.NewDecoder(bytes.NewReader(content)).Decode(found); err != nil {
		return nil, broken("an error as JSON, got: %.100q", content)
	}
	if found.Number == numberFenced {
		// To a caller it is as if the broker went away: the next attempt finds the owner.
		found.Number, found.Name = NumberUnavailable, "Unavailable"
		found.Text = "another broker took the partition over; the outcome is unknown: " + found.Text
	}
	return found, nil
}
