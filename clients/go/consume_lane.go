package dejaqueue

// A consumer's lane: the frames of a consumer's stream over a plain connection, and behind each
// DELIVERY its rows.

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// consumeStream is what a consumer says its frames to; called under the consumer's mutex.
type consumeStream interface {
	say(frame []byte)
}

// laneConsume is a consumer's side of a lane. It reads as the bytes of an Arrow stream: the schema of
// the OPENED, and the rows of each DELIVERY; other frames go to the consumer.
type laneConsume struct {
	connection *laneConnection
	consumer   *Consumer
	opened     bool
	whole      bool   // the broker closed it
	rows       []byte // of the frame that came last
	head       *delivery
	ended      *Error // what an ERROR said
}

// say never waits: whoever reads wants the consumer's mutex, too.
func (l *laneConsume) say(frame []byte) {
	l.connection.put(func(to []byte) []byte { return withLength(to, frame) })
	l.connection.flushSoon()
}

// serveLane is one lane, from its opening to its end; why it ended, and whether anything came.
func (c *Consumer) serveLane(connection *laneConnection) (*Error, bool) {
	defer func() { _ = connection.Close() }()
	stream := &laneConsume{connection: connection, consumer: c}
	stream.say(encodeOpen(commandOf(c.command)))
	if !c.begin(stream) {
		return unavailable("the consumer is closed"), false
	}
	asked, over := connection.place.broker, make(chan struct{})
	defer close(over)
	go c.ping(over)
	var silent atomic.Pointer[Error]
	go c.attend(asked, func(wrong *Error) {
		silent.Store(wrong)
		_ = connection.Close()
	}, over)
	wrong := stream.read()
	if known := silent.Load(); known != nil {
		wrong = known
	}
	c.endedWhole(stream.whole && stream.ended == nil)
	if stream.ended != nil {
		wrong = stream.ended
	}
	isKnown := c.client.learn(c.topic, asked, wrong)
	refused := !stream.opened && stream.ended != nil
	if (wrong.Number == NumberElsewhere && !isKnown) || (refused && !wrong.CanRetry()) {
		// By Flight the broker passes it on, or says what is wrong with it.
		c.mutex.Lock()
		c.laneAfter = time.Now().Add(laneRetry)
		c.mutex.Unlock()
		wrong = unavailable("the lane is refused: %s", wrong.Text)
	}
	return wrong, stream.opened
}

func (l *laneConsume) read() *Error {
	reader, err := ipc.NewReader(l)
	if err != nil {
		return l.why(err)
	}
	defer reader.Release()
	for l.rows = nil; reader.Next(); l.rows = nil { // behind a message may be what a later broker adds
		rows, err := messagesOf(reader.RecordBatch())
		if err != nil {
			return errorOf(err)
		}
		l.consumer.delivered(l.head, rows)
	}
	return l.why(reader.Err())
}

func (l *laneConsume) why(err error) *Error {
	var known *Error
	switch {
	case errors.As(err, &known):
		return known
	case err == nil || errors.Is(err, io.EOF):
		l.whole = true
		return unavailable("the broker closed the lane")
	}
	return unavailable("the lane broke: %v", err)
}

// Read is the next bytes of rows.
func (l *laneConsume) Read(to []byte) (int, error) {
	for len(l.rows) == 0 {
		if err := l.hear(); err != nil {
			return 0, err
		}
	}
	count := copy(to, l.rows)
	l.rows = l.rows[count:]
	return count, nil
}

// hear takes one frame.
func (l *laneConsume) hear() error {
	_ = l.connection.SetReadDeadline(time.Now().Add(laneSilenceMost))
	content, err := l.connection.receive()
	if err != nil {
		return err
	}
	if len(content) >= headBytes && content[0] == wireVersion && content[1] == frameOpened {
		if !l.opened {
			l.opened, l.rows = true, content[headBytes:]
		}
		return nil
	}
	frame, err := decode(content)
	if err != nil {
		return err
	}
	switch frame := frame.(type) {
	case *delivery:
		if !l.opened || len(content) == deliveryBytes {
			return broken("rows behind a schema and a DELIVERY, got: %d bytes", len(content))
		}
		l.head, l.rows = frame, content[deliveryBytes:]
	case *Error:
		l.ended = frame
	case ended:
		return io.EOF
	default:
		l.consumer.heard(frame)
	}
	return nil
}
