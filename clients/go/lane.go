package dejaqueue

// The express lane: single messages over a plain stream beside Flight (docs/wire.md). An HTTP
// connection at the broker's HTTP port becomes one by an upgrade.

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	lanePath     = "/v1/lane"
	laneProtocol = "dejaq-lane"
	laneHeader   = "x-dejaq-lane"

	// laneRetry is when a broker is asked again that had no lane, or none that could be reached.
	laneRetry = time.Minute
	// To say where the lane is, and to be let in: somebody waits who could send by Flight meanwhile.
	laneAskMost     = 5 * time.Second
	laneConnectMost = 2 * time.Second
	// laneWriteMost is how long the broker may not read; laneSilenceMost how long it may say
	// nothing to a consumer, whose pings it answers every second.
	laneWriteMost   = 30 * time.Second
	laneSilenceMost = time.Minute
	laneWriteBytes  = 256 << 10

	// laneInBuffers is how many bytes a connection surely takes without having somebody wait.
	laneInBuffers = 16 << 10

	bufferKept = 1 << 20 // larger buffers are given back
)

// lanePlace is where a broker has its lanes.
type lanePlace struct {
	broker *broker
	port   int
	name   string // of this broker, until it stops: whoever asks for a lane says it
	fields bool   // messages may have more than a payload and a due time
}

// lanes are a broker's, as far as this client knows.
type lanes struct {
	lackingUntil atomic.Int64         // UTC, nanoseconds
	turn         sync.Mutex           // held while the shared one is opened
	shared       atomic.Pointer[lane] // of the producers
	seeking      atomic.Bool
	closed       bool // under turn
}

func (l *lanes) close() {
	l.turn.Lock()
	defer l.turn.Unlock()
	l.closed = true
	if open := l.shared.Load(); open != nil {
		open.close()
	}
}

// laneConnection is an open lane: frames in both directions.
type laneConnection struct {
	net.Conn
	laneWriter
	reader *bufio.Reader
	buffer []byte
	place  lanePlace
}

// lanePlaceOf asks a broker; nil = it has none.
func (c *Client) lanePlaceOf(ctx context.Context, asked *broker) (*lanePlace, error) {
	ctx, cancel := context.WithTimeout(ctx, min(laneAskMost, asked.signMost()))
	defer cancel()
	answer, err := c.act(ctx, asked, "lane", nil, false)
	if err != nil {
		return nil, err
	}
	port, _ := answer["port"].(float64)
	name, _ := answer["name"].(string)
	fields, _ := answer["fields"].(bool) // an earlier version says nothing of them
	if port <= 0 || port > 65535 || !isHeaderText(name) {
		return nil, nil
	}
	return &lanePlace{asked, int(port), name, fields}, nil
}

// isHeaderText tells that a text can stand in a header as it is.
func isHeaderText(text string) bool {
	for _, letter := range []byte(text) {
		if letter < ' ' || letter > '~' {
			return false
		}
	}
	return text != ""
}

// mayHaveLane tells that a broker may be asked for a lane now.
func (c *Client) mayHaveLane(at *broker) bool {
	return !c.flightOnly && time.Now().UnixNano() >= at.lanes.lackingUntil.Load()
}

// lack has everything go by Flight for a while.
func (l *lanes) lack() { l.lackingUntil.Store(time.Now().Add(laneRetry).UnixNano()) }

// connectLane opens a lane; nil = there is none for now: by Flight it will be said what is wrong.
func (c *Client) connectLane(asked *broker) *laneConnection {
	if !c.mayHaveLane(asked) {
		return nil
	}
	place, err := c.lanePlaceOf(context.Background(), asked)
	if err != nil && errorOf(err).CanRetry() {
		c.leave(asked, errorOf(err))
		return nil // the broker is away: whoever sends tries again soon
	}
	if err == nil && place != nil {
		if opened, err := c.dialLane(*place); err == nil {
			return opened
		}
	}
	asked.lanes.lack()
	return nil
}

func (c *Client) dialLane(place lanePlace) (*laneConnection, error) {
	until := time.Now().Add(laneConnectMost)
	dialer := net.Dialer{Deadline: until, Control: boundUnacknowledged, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 4,
	}}
	at := net.JoinHostPort(place.broker.host, strconv.Itoa(place.port))
	connection, err := dialer.Dial("tcp", at)
	if err != nil {
		return nil, err
	}
	_ = connection.SetDeadline(until)
	if c.scheme == "dejaqs" {
		connection = tls.Client(connection, c.laneTLS(place.broker.host))
	}
	reader, err := c.upgrade(connection, at, place.name)
	if err != nil {
		_ = connection.Close()
		return nil, err
	}
	_ = connection.SetDeadline(time.Time{})
	return &laneConnection{
		Conn: connection, laneWriter: laneWriter{connection: connection}, reader: reader, place: place,
	}, nil
}

// laneTLS is what Flight's connection has, for the protocol of the HTTP port.
func (c *Client) laneTLS(host string) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.tls != nil {
		config = c.tls.Clone()
	}
	if config.ServerName == "" {
		config.ServerName = host
	}
	config.NextProtos = []string{"http/1.1"}
	return config
}

func (c *Client) upgrade(connection net.Conn, host, name string) (*bufio.Reader, error) {
	asked := "GET " + lanePath + " HTTP/1.1\r\nhost: " + host + "\r\nconnection: upgrade\r\nupgrade: " +
		laneProtocol + "\r\n" + laneHeader + ": " + name + "\r\n"
	if c.apiKey != "" {
		if !isHeaderText(c.apiKey) {
			return nil, fmt.Errorf("an API key of printable letters")
		}
		asked += "authorization: Bearer " + c.apiKey + "\r\n"
	}
	if _, err := io.WriteString(connection, asked+"\r\n"); err != nil {
		return nil, err
	}
	reader := bufio.NewReaderSize(connection, 1<<16)
	response, err := http.ReadResponse(reader, &http.Request{Method: http.MethodGet})
	if err != nil {
		return nil, err
	}
	upgraded := strings.EqualFold(response.Header.Get("upgrade"), laneProtocol)
	if response.StatusCode != http.StatusSwitchingProtocols || !upgraded {
		return nil, fmt.Errorf("the lane is refused: %s", response.Status)
	}
	return reader, nil
}

// receive is the next frame, which holds until the next call.
func (l *laneConnection) receive() ([]byte, error) {
	var length [lengthBytes]byte
	if _, err := io.ReadFull(l.reader, length[:]); err != nil {
		return nil, err
	}
	bytes := int(binary.LittleEndian.Uint32(length[:]))
	if bytes > bytesMax {
		return nil, broken("a frame of at most %d bytes, got: %d", bytesMax, bytes)
	}
	if cap(l.buffer) < bytes || cap(l.buffer) > bufferKept {
		l.buffer = make([]byte, bytes, max(bytes, 4096))
	}
	content := l.buffer[:bytes]
	if _, err := io.ReadFull(l.reader, content); err != nil {
		return nil, err
	}
	return content, nil
}

// laneError is what the end of a lane means; the outcome of what was not answered is unknown.
func laneError(err error) *Error {
	if known, is := err.(*Error); is {
		return known
	}
	if err == io.EOF {
		return unavailable("the broker closed the lane")
	}
	return unavailable("the lane broke: %v", err)
}

// laneWriter writes what several goroutines have put, in order, by one of them at a time: whoever
// puts holds a mutex that the reader of answers wants, too, and must not wait for the network.
type laneWriter struct {
	connection net.Conn
	mutex      sync.Mutex
	out, spare []byte
	writing    bool
	broken     bool
}

// put has what `add` appends written by the next flush.
func (w *laneWriter) put(add func([]byte) []byte) {
	w.mutex.Lock()
	if !w.broken {
		w.out = add(w.out)
	}
	w.mutex.Unlock()
}

// flush writes what was put, unless somebody does. If it fails, whoever reads learns it.
func (w *laneWriter) flush() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.writing {
		return
	}
	w.writing = true
	for len(w.out) > 0 && !w.broken {
		content := w.out
		w.out, w.spare = w.spare[:0], nil
		w.mutex.Unlock()
		err := w.write(content)
		w.mutex.Lock()
		if cap(content) <= bufferKept {
			w.spare = content
		}
		if err != nil {
			w.broken, w.out = true, nil
			_ = w.connection.Close()
		}
	}
	w.writing = false
}

// write is by one goroutine at a time. Each piece has its time: on a slow network all together may take
// longer.
func (w *laneWriter) write(content []byte) error {
	for len(content) > 0 {
		piece := content[:min(len(content), laneWriteBytes)]
		_ = w.connection.SetWriteDeadline(time.Now().Add(laneWriteMost))
		if _, err := w.connection.Write(piece); err != nil {
			return err
		}
		content = content[len(piece):]
	}
	return nil
}

// flushSoon is flush for a caller that must not wait.
func (w *laneWriter) flushSoon() {
	w.mutex.Lock()
	idle := !w.writing && len(w.out) > 0
	w.mutex.Unlock()
	if idle {
		go w.flush()
	}
}

// lane is an open lane for single messages, those of all producers of a client.
type lane struct {
	connection *laneConnection
	mutex      sync.Mutex
	number     uint32
	pending    map[uint32]pendingSend
	channels   map[*laneChannel]bool
	unanswered int // bytes
	over       bool
	silent     *Error // why we ended it
}

type pendingSend struct {
	channel *laneChannel
	number  uint32 // the producer's
	bytes   int
}

// sharedLane is the lane of this client's producers to a broker, opened where it is not; nil = there is
// none.
func (c *Client) sharedLane(to *broker) *lane {
	to.lanes.turn.Lock()
	defer to.lanes.turn.Unlock()
	if open := to.lanes.open(); open != nil || to.lanes.closed {
		return open
	}
	connection := c.connectLane(to)
	if connection == nil {
		return nil
	}
	opened := &lane{
		connection: connection, pending: map[uint32]pendingSend{}, channels: map[*laneChannel]bool{},
	}
	to.lanes.shared.Store(opened)
	go opened.read(c)
	return opened
}

// open is the lane of the producers, if it is open.
func (l *lanes) open() *lane {
	if open := l.shared.Load(); open != nil && !open.isOver() {
		return open
	}
	return nil
}

// seekLane looks whether a broker has a lane by now; whoever sends goes on by Flight meanwhile.
func (c *Client) seekLane(at *broker) {
	if at.lanes.seeking.CompareAndSwap(false, true) {
		go func() {
			defer at.lanes.seeking.Store(false)
			c.sharedLane(at)
		}()
	}
}

func (l *lane) isOver() bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.over
}

// read hands out replies until the lane ends.
func (l *lane) read(client *Client) {
	wrong := l.hear()
	_ = l.connection.Close()
	at, first := l.connection.place.broker, wrong
	client.leave(at, wrong)
	if !wrong.CanRetry() {
		// What the lane refuses goes by Flight, which says what is wrong with it.
		at.lanes.lack()
		wrong = unavailable("the broker ended the lane: %s", wrong.Text)
	}
	l.mutex.Lock()
	l.over = true
	if l.silent != nil {
		wrong = l.silent
	}
	channels := l.channels
	l.channels, l.pending = map[*laneChannel]bool{}, map[uint32]pendingSend{}
	l.mutex.Unlock()
	for channel := range channels {
		client.learn(channel.link.topic, at, first)
		channel.link.lost(channel, wrong)
	}
}

func (l *lane) hear() *Error {
	for {
		content, err := l.connection.receive()
		if err != nil {
			return laneError(err)
		}
		frame, err := decode(content)
		if err != nil {
			return laneError(err)
		}
		switch frame := frame.(type) {
		case *reply:
			l.mutex.Lock()
			asked, known := l.pending[frame.number]
			delete(l.pending, frame.number)
			l.unanswered -= asked.bytes
			l.mutex.Unlock()
			if known {
				asked.channel.link.replied(asked.channel, asked.number, frame)
			}
		case *Error:
			return frame
		}
	}
}

func (l *lane) close() { _ = l.connection.Close() }

// laneChannel is what one producer sends by a lane.
type laneChannel struct {
	lane *lane
	link *link
}

func (l *lane) channel(of *link) *laneChannel {
	made := &laneChannel{l, of}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if !l.over {
		l.channels[made] = true
	}
	return made
}

func (c *laneChannel) isLane() bool { return true }

func (c *laneChannel) isOver() bool { return c.lane.isOver() }

func (c *laneChannel) peer() *broker { return c.lane.connection.place.broker }

func (c *laneChannel) write(sending *outgoing) bool {
	if sending.content.rows == 0 {
		// With due times, so that a producer's messages keep their order with those of its batches.
		sending.content = encodeRows(sending.messages, true)
	}
	if sending.content.flags&sendHasFields != 0 && !c.lane.connection.place.fields {
		return false
	}
	l := c.lane
	l.mutex.Lock()
	if l.over {
		l.mutex.Unlock()
		return true // its end is on its way to the link
	}
	l.number++
	number := l.number
	l.pending[number] = pendingSend{c, sending.number, len(sending.content.content)}
	l.unanswered += len(sending.content.content)
	l.mutex.Unlock()
	address := encodeAddress(sending.number, c.link.name, c.link.topic)
	l.connection.put(func(to []byte) []byte { return appendSend(to, number, address, sending.content) })
	return true
}

// flush writes at once what surely goes into the connection's buffers: whoever sends does not wait
// for a network that is slow, but for its context.
func (c *laneChannel) flush() {
	c.lane.mutex.Lock()
	small := c.lane.unanswered <= laneInBuffers
	c.lane.mutex.Unlock()
	if small {
		c.lane.connection.flush()
	} else {
		c.lane.connection.flushSoon()
	}
}

func (c *laneChannel) flushSoon() { c.lane.connection.flushSoon() }

// drop leaves the lane to the others; replies that still come are the link's.
func (c *laneChannel) drop() {
	c.lane.mutex.Lock()
	defer c.lane.mutex.Unlock()
	delete(c.lane.channels, c)
}

func (c *laneChannel) finish() { c.drop() }

// abort ends the lane for all producers: their broker is silent.
func (c *laneChannel) abort(wrong *Error) {
	c.lane.mutex.Lock()
	c.lane.silent = wrong
	c.lane.mutex.Unlock()
	c.lane.close()
}
