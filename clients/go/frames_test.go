package dejaqueue

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// worked is the bytes of each frame of docs/wire.md, by the beginning of its line.
func worked(t *testing.T, name string) []byte {
	t.Helper()
	return workedUnder(t, "### Worked frames", name)
}

func workedUnder(t *testing.T, heading, name string) []byte {
	t.Helper()
	page, err := os.ReadFile("../../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), heading)
	_, block, _ = strings.Cut(block, "\n# "+name)
	_, block, _ = strings.Cut(block, "\n")
	var content []byte
	for _, line := range strings.Split(block, "\n") {
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "```") {
			break
		}
		if strings.HasPrefix(line, "{") {
			content = append(content, line...)
			continue
		}
		part, err := hex.DecodeString(strings.ReplaceAll(line, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		content = append(content, part...)
	}
	if len(content) < headBytes {
		t.Fatalf("the page has no frame %q", name)
	}
	return content
}

func TestFramesThatAreSentAreThoseOfThePage(t *testing.T) {
	made := map[string][]byte{
		"CREDIT of":  encodeCredit(1000),
		"CREDIT 0":   encodeCredit(0),
		"CLOSE":      encodeClose(),
		"PING 1:":    encodePing(ping{1, 1_000_000, 0, unknown}),
		"SETTLE 6:":  encodeSettle(settle{op: opAck, number: 6, partition: 2, leaseID: 81}),
		"SETTLE 7:":  encodeSettle(settle{op: opAck, number: 7, leaseID: -1, ids: []int64{7, 5}, attempts: []uint16{1, 2}}),
		"SETTLE 8:":  encodeSettle(settle{op: opNack, number: 8, leaseID: -1, argumentMS: -1, ids: []int64{7}, attempts: []uint16{1}, reason: "no"}),
		"SETTLE 9:":  encodeSettle(settle{op: opNack, number: 9, partition: 2, leaseID: 81, fate: fateDead}),
		"SETTLE 10:": encodeSettle(settle{op: opExtend, number: 10, partition: 2, leaseID: -1, argumentMS: 30000, leaseIDs: []int64{81, 82}}),
		"SETTLE 0:":  encodeSettle(settle{op: opExtend, partition: 2, leaseID: 81}),
	}
	for name, frame := range made {
		if want := worked(t, name); !bytes.Equal(frame, want) {
			t.Errorf("%s\n% x, made\n% x", name, want, frame)
		}
	}
}

func TestSendsOfALaneAreThoseOfThePage(t *testing.T) {
	urgent := uint16(7)
	due, end := time.UnixMilli(1_700_000_000_000), time.UnixMilli(1_700_000_060_000)
	rich := []*Message{
		{Payload: []byte("a"), Key: "k", Priority: &urgent, Tags: []string{"red", "x"}, Headers: map[string]string{"h": "1"}},
		{Payload: []byte("b"), Group: "g", Expires: end},
	}
	sends := [][]*Message{
		{{Payload: []byte("hi")}},
		{{Payload: []byte("hi")}, {Due: due}},
		rich,
	}
	const heading = "### SENDs that are worked out"
	for place, messages := range sends {
		number := uint32(place + 1)
		made := appendSend(nil, number, encodeAddress(number+4, "p", "t"), encodeRows(messages, number == 2))
		want := workedUnder(t, heading, fmt.Sprintf("SEND %d:", number))
		if !bytes.Equal(made, withLength(nil, want)) {
			t.Errorf("SEND %d\n% x, made\n% x", number, want, made[lengthBytes:])
		}
	}
	open := append(encodeOpen(nil), "{\"topic\": \"t\"}"...)
	if want := workedUnder(t, heading, "OPEN"); !bytes.Equal(open, want) {
		t.Errorf("OPEN\n% x, made\n% x", want, open)
	}
}

func TestWhatMayGoByALaneIsSmallAndUTF8(t *testing.T) {
	bytes, valid := laneBytes(&Message{Payload: []byte("abc"), Key: "k", Tags: []string{"ü"}, Headers: map[string]string{"h": "v"}})
	if bytes != 8 || !valid {
		t.Error(bytes, valid)
	}
	for _, broken := range []*Message{
		{Key: "\xff"}, {Group: "\xff"}, {Tags: []string{"\xff"}}, {Headers: map[string]string{"a": "\xff"}},
	} {
		if _, valid := laneBytes(broken); valid {
			t.Error("a text that is no UTF-8 is taken", broken)
		}
	}
}

func TestFramesThatComeAreReadAsThePageSays(t *testing.T) {
	read := func(name string) any {
		// A later broker may send more behind the last field.
		for _, behind := range [][]byte{nil, {1, 2, 3}} {
			frame, err := decode(append(worked(t, name), behind...))
			if err != nil {
				t.Fatal(name, err)
			}
			if behind != nil {
				return frame
			}
		}
		return nil
	}
	first := read("REPLY 1:").(*reply)
	if len(first.ids) != 3 || first.ids[2] != 140737488355330 || first.statusesOf(3)[2] != OK {
		t.Error(first)
	}
	second := read("REPLY 2:").(*reply)
	if second.ids[1] != 5 || second.statusesOf(2)[1] != Duplicate || second.number != 2 {
		t.Error(second)
	}
	if lost := read("REPLY 4:").(*reply).statusesOf(3); lost[2] != LeaseLost {
		t.Error(lost)
	}
	if refused := read("REPLY 5:").(*reply).err; refused.Number != NumberTopicUnknown || refused.CanRetry() {
		t.Error(refused)
	}
	if clock := read("PONG 1:").(*pong); clock.brokerUS != 1_700_000_000_000_000 || clock.clientUS != 1_000_000 {
		t.Error(clock)
	}
	if head := read("DELIVERY:").(*delivery); *head != (delivery{2, 3, 81, 1_700_000_030_000, 1_700_000_000_000_123}) {
		t.Error(head)
	}
	ended := read("ERROR").(*Error)
	if !ended.CanRetry() || ended.RetryAfter().Milliseconds() != 1000 {
		t.Error(ended)
	}
}

func TestBytesThatAreNoFrameAreAnError(t *testing.T) {
	whole := worked(t, "REPLY 2:")
	for length := range whole {
		if _, err := decode(whole[:length]); err == nil {
			t.Errorf("%d bytes of a REPLY are taken", length)
		}
	}
}

func TestAMessageIsNeverEarlyByTheBrokersClock(t *testing.T) {
	var clock clockOffset
	if _, known := clock.wait(1, 0); known {
		t.Error("a clock that was not measured is believed")
	}
	clock.addPong(1_000, 1_200, 5_100) // 4,000 ± 100
	if offset, uncertainty := clock.at(1_200); offset != 4_000 || uncertainty != 100 {
		t.Error(offset, uncertainty)
	}
	if us, _ := clock.wait(6_000, 1_200); us != 6_000-(1_200+4_000-100) {
		t.Error(us)
	}
	if _, uncertainty := clock.at(1_200 + 2_000_000); uncertainty != 200 {
		t.Error("the uncertainty does not grow by 50 µs a second", uncertainty)
	}
	clock.reached = 6_000
	if us, _ := clock.wait(6_000, 1_200); us != 0 {
		t.Error("the broker's clock was there already", us)
	}
}
