// Package dejaqueue is a client of DejaQ, a message queue that delivers at a time.
//
// It is written from docs/wire.md and nothing else: Arrow Flight, record batches, and frames; and
// the express lane, which single messages and consumers take where the broker has one. A
// Client is safe for many goroutines; so are its producers and consumers.
package dejaqueue

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

const (
	defaultPort = "7464"
	bytesMax    = 192 << 20 // of one gRPC message: a batch of 128 MiB, and what is around it
)

// Options of a client.
type Options struct {
	APIKey string      // goes with every call; "" = none
	TLS    *tls.Config // for dejaqs://; nil = the system's certificates are trusted
	// RetryFor is how long a batch is sent again after its connection broke; 0 = 30 seconds.
	RetryFor time.Duration
	// FlightOnly has nothing go by the broker's express lane (an upgraded connection at its HTTP
	// port), which single messages and consumers take where there is one.
	FlightOnly bool
}

// Client is a connection to a broker, which is made again when it breaks: to the next one, where
// the address names several.
type Client struct {
	brokers  []*broker
	at       atomic.Uint32 // which of them
	headers  []string
	retryFor time.Duration

	apiKey     string
	secured    bool
	tls        *tls.Config
	flightOnly bool

	lanelessUntil atomic.Int64         // UTC, nanoseconds
	laneTurn      sync.Mutex           // held while a lane is opened
	lane          atomic.Pointer[lane] // of the producers
	seeking       atomic.Bool
	closed        bool // under laneTurn
}

// broker is one address. In a cluster any broker takes any call.
type broker struct {
	host   string
	flight flight.Client
}

// broker is whom to ask now.
func (c *Client) broker() *broker { return c.brokers[c.at.Load()] }

// leave has the next broker be asked if what went wrong at this one may be for its being away.
func (c *Client) leave(from *broker, wrong *Error) {
	at := c.at.Load()
	if len(c.brokers) > 1 && wrong.Number == NumberUnavailable && c.brokers[at] == from {
		c.at.CompareAndSwap(at, (at+1)%uint32(len(c.brokers)))
	}
}

// Dial makes a client of dejaq://host:port, or dejaqs:// for TLS; of a cluster it takes several,
// dejaq://host:port,host:port. It does not wait for the broker.
func Dial(address string, options Options) (*Client, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	if scheme != "dejaq" && scheme != "dejaqs" {
		return nil, badRequest("url", "dejaq://host:port or dejaqs://host:port", address)
	}
	secured := insecure.NewCredentials()
	if scheme == "dejaqs" {
		secured = credentials.NewTLS(options.TLS)
	} else if options.TLS != nil {
		return nil, badRequest("url", "dejaqs://host:port with TLS", address)
	}
	client := &Client{
		retryFor: options.RetryFor, apiKey: options.APIKey, secured: scheme == "dejaqs",
		tls: options.TLS, flightOnly: options.FlightOnly,
	}
	if client.retryFor == 0 {
		client.retryFor = 30 * time.Second
	}
	if options.APIKey != "" {
		client.headers = []string{"authorization", "Bearer " + options.APIKey}
	}
	for one := range strings.SplitSeq(rest, ",") {
		made, err := brokerOf(scheme+"://"+strings.TrimSpace(one), secured)
		if err != nil {
			_ = client.Close()
			return nil, err
		}
		client.brokers = append(client.brokers, made)
	}
	return client, nil
}

func brokerOf(address string, secured credentials.TransportCredentials) (*broker, error) {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Hostname() == "" {
		return nil, badRequest("url", "dejaq://host:port or dejaqs://host:port", address)
	}
	port := parsed.Port()
	if port == "" {
		port = defaultPort
	}
	connection, err := grpc.NewClient(
		"passthrough:///"+net.JoinHostPort(parsed.Hostname(), port),
		grpc.WithTransportCredentials(secured),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(bytesMax), grpc.MaxCallSendMsgSize(bytesMax),
		),
		grpc.WithConnectParams(connectParams),
	)
	if err != nil {
		return nil, badRequest("url", "an address that can be reached", err.Error())
	}
	return &broker{parsed.Hostname(), flight.NewClientFromConn(connection, nil)}, nil
}

// Close ends the connection. Close producers and consumers before.
func (c *Client) Close() error {
	c.laneTurn.Lock()
	defer c.laneTurn.Unlock()
	c.closed = true
	if open := c.lane.Load(); open != nil {
		open.close()
	}
	var wrong error
	for _, one := range c.brokers {
		wrong = errors.Join(wrong, one.flight.Close())
	}
	return wrong
}

func (c *Client) context(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, c.headers...)
}

// followed calls again while the topic is on its way to another broker: what was answered with
// Elsewhere was not carried out.
func (c *Client) followed(ctx context.Context, call func() error) error {
	until := time.Now().Add(c.retryFor)
	for failures := 0; ; failures++ {
		err := call()
		var known *Error
		if !errors.As(err, &known) || known.Number != NumberElsewhere || time.Now().After(until) {
			return err
		}
		select {
		case <-time.After(max(pause(failures), min(known.RetryAfter(), time.Second))):
		case <-ctx.Done():
			return err
		}
	}
}

// Action is an administrative call: a JSON object in, a JSON object out.
func (c *Client) Action(ctx context.Context, name string, body map[string]any) (map[string]any, error) {
	asked := c.broker()
	answer, err := c.act(ctx, asked, name, body)
	if err != nil {
		c.leave(asked, errorOf(err))
	}
	return answer, err
}

// act asks one broker.
func (c *Client) act(
	ctx context.Context, asked *broker, name string, body map[string]any,
) (map[string]any, error) {
	if body == nil {
		body = map[string]any{}
	}
	content, err := json.Marshal(body)
	if err != nil {
		return nil, badRequest("body", "values that JSON can hold", err.Error())
	}
	ctx, cancel := context.WithCancel(c.context(ctx))
	defer cancel()
	stream, err := asked.flight.DoAction(ctx, &flight.Action{Type: name, Body: content})
	if err != nil {
		return nil, errorOf(err)
	}
	answer := map[string]any{}
	for first := true; ; first = false {
		result, err := stream.Recv()
		if err == io.EOF {
			return answer, nil
		}
		if err != nil {
			return nil, errorOf(err)
		}
		if first {
			if err := json.Unmarshal(result.Body, &answer); err != nil {
				return nil, broken("a JSON object for %s, got: %.100q", name, result.Body)
			}
		}
	}
}

// CreateTopic makes a topic; settings may be nil. A topic with the same settings may exist.
func (c *Client) CreateTopic(ctx context.Context, name string, settings map[string]any) error {
	body := map[string]any{"name": name, "exist_ok": true}
	for setting, value := range settings {
		body[setting] = value
	}
	return c.followed(ctx, func() error {
		_, err := c.Action(ctx, "create_topic", body)
		return err
	})
}

// Peek looks at messages without leasing them. The query has the fields of docs/wire.md, such as
// limit, ids or keys.
func (c *Client) Peek(
	ctx context.Context, topic string, query map[string]any,
) (found []*Message, err error) {
	err = c.followed(ctx, func() (err error) {
		found, err = c.peekOnce(ctx, topic, query)
		return err
	})
	return found, err
}

func (c *Client) peekOnce(ctx context.Context, topic string, query map[string]any) ([]*Message, error) {
	ticket := map[string]any{"op": "peek", "topic": topic}
	for name, value := range query {
		ticket[name] = value
	}
	content, err := json.Marshal(ticket)
	if err != nil {
		return nil, badRequest("query", "values that JSON can hold", err.Error())
	}
	ctx, cancel := context.WithCancel(c.context(ctx))
	defer cancel()
	asked := c.broker()
	stream, err := asked.flight.DoGet(ctx, &flight.Ticket{Ticket: content})
	if err != nil {
		return nil, errorOf(err)
	}
	reader, err := flight.NewRecordReader(stream)
	if err != nil {
		wrong := errorOf(err)
		c.leave(asked, wrong)
		return nil, wrong
	}
	defer reader.Release()
	var found []*Message
	for reader.Next() {
		rows, err := messagesOf(reader.RecordBatch())
		if err != nil {
			return nil, err
		}
		found = append(found, rows...)
	}
	if err := reader.Err(); err != nil && err != io.EOF {
		return nil, errorOf(err)
	}
	return found, nil
}

// Change is a new due time, priority or group of a message that is not leased yet.
type Change struct {
	ID  int64  // of the message, if Key is ""
	Key string // all changes of a call have an ID, or all have a Key
	Due time.Time
}

// Move gives messages another due time, by id or by key; a status for each.
func (c *Client) Move(ctx context.Context, topic string, changes []Change) ([]Status, error) {
	return c.rename(ctx, topic, "move", changes)
}

// Cancel takes back messages that are not leased yet, by id; a status for each.
func (c *Client) Cancel(ctx context.Context, topic string, ids ...int64) ([]Status, error) {
	changes := make([]Change, len(ids))
	for row, id := range ids {
		changes[row].ID = id
	}
	return c.rename(ctx, topic, "cancel", changes)
}

// CancelKeys is Cancel by key.
func (c *Client) CancelKeys(ctx context.Context, topic string, keys ...string) ([]Status, error) {
	changes := make([]Change, len(keys))
	for row, key := range keys {
		changes[row].Key = key
	}
	return c.rename(ctx, topic, "cancel", changes)
}

func (c *Client) rename(ctx context.Context, topic, op string, changes []Change) ([]Status, error) {
	if len(changes) == 0 {
		return nil, nil
	}
	batch := changesBatch(changes, op == "move")
	defer batch.Release()
	answer, err := c.write(ctx, map[string]any{"topic": topic, "op": op}, batch)
	if err != nil {
		return nil, err
	}
	return answer.statusesOf(len(changes)), nil
}

// Settled acks, nacks or extends by id and attempt, without a consumer: op is "ack", "nack" or
// "extend"; argumentMS is the delay of a nack or the lease of an extend.
func (c *Client) settleRows(
	ctx context.Context, topic, op, transaction string, messages []*Message,
) ([]Status, error) {
	batch := settleBatch(messages)
	defer batch.Release()
	command := map[string]any{"topic": topic, "op": op, "transaction": transaction}
	answer, err := c.write(ctx, command, batch)
	if err != nil {
		return nil, err
	}
	return answer.statusesOf(len(messages)), nil
}

// write sends one batch on a stream of its own. If the connection breaks, whether the batch was
// carried out is unknown: the error says Unavailable.
func (c *Client) write(
	ctx context.Context, command map[string]any, batch arrow.RecordBatch,
) (answer *reply, err error) {
	err = c.followed(ctx, func() (err error) {
		answer, err = c.writeOnce(ctx, command, batch)
		return err
	})
	return answer, err
}

func (c *Client) writeOnce(
	ctx context.Context, command map[string]any, batch arrow.RecordBatch,
) (*reply, error) {
	ctx, cancel := context.WithCancel(c.context(ctx))
	defer cancel()
	asked := c.broker()
	stream, err := asked.flight.DoPut(ctx)
	if err != nil {
		wrong := errorOf(err)
		c.leave(asked, wrong)
		return nil, wrong
	}
	writer := flight.NewRecordWriter(stream, ipc.WithSchema(batch.Schema()))
	writer.SetFlightDescriptor(commandDescriptor(command))
	// A failure to write is told by the end of the stream, which has the broker's words.
	if err := writer.Write(batch); err == nil {
		_ = writer.Close()
		_ = stream.CloseSend()
	}
	result, err := stream.Recv()
	if err != nil {
		if err == io.EOF {
			return nil, unavailable("the stream ended before its reply")
		}
		wrong := errorOf(err)
		c.leave(asked, wrong)
		return nil, wrong
	}
	frame, err := decode(result.AppMetadata)
	if err != nil {
		return nil, err
	}
	answer, is := frame.(*reply)
	if !is {
		return nil, broken("a REPLY, got: %T", frame)
	}
	if answer.err != nil {
		return nil, answer.err
	}
	return answer, nil
}

func commandDescriptor(command map[string]any) *flight.FlightDescriptor {
	return &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: commandOf(command)}
}

func commandOf(command map[string]any) []byte {
	content, err := json.Marshal(command)
	if err != nil {
		panic(err) // texts, numbers and booleans of our own
	}
	return content
}

func badRequest(field, limit, value string) *Error {
	return &Error{
		Number: NumberBadRequest, Name: "BadRequest",
		Text:   field + ": " + limit + ", got: " + value,
		Fields: map[string]any{"field": field, "limit": limit, "value": value},
	}
}
