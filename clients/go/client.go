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
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
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
	// Stays has the brokers of the address pass on what another one serves; otherwise the client goes
	// there itself, if it is reached from here.
	Stays bool
}

// Client is a connection to a broker, which is made again when it breaks: to the next one, where
// the address names several. In a cluster it goes to the broker that serves a topic.
type Client struct {
	routes
	headers  []string
	retryFor time.Duration
	flights  flights

	apiKey     string
	tls        *tls.Config
	flightOnly bool
}

// Dial makes a client of dejaq://host:port, or dejaqs:// for TLS; of a cluster it takes several,
// dejaq://host:port,host:port. It does not wait for the broker.
func Dial(address string, options Options) (*Client, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	if scheme != "dejaq" && scheme != "dejaqs" {
		return nil, badRequest("url", "dejaq://host:port or dejaqs://host:port", address)
	}
	creds := insecure.NewCredentials()
	if scheme == "dejaqs" {
		creds = credentials.NewTLS(options.TLS)
	} else if options.TLS != nil {
		return nil, badRequest("url", "dejaqs://host:port with TLS", address)
	}
	client := &Client{
		retryFor: options.RetryFor, apiKey: options.APIKey, tls: options.TLS, flightOnly: options.FlightOnly,
	}
	client.routes.creds, client.scheme, client.stays = creds, scheme, options.Stays
	client.told, client.homes, client.passedOn = map[string]*broker{}, map[string]*broker{}, map[string]bool{}
	if client.retryFor == 0 {
		client.retryFor = 30 * time.Second
	}
	if options.APIKey != "" {
		client.headers = []string{"authorization", "Bearer " + options.APIKey}
	}
	for one := range strings.SplitSeq(rest, ",") {
		made, err := brokerOf(scheme+"://"+strings.TrimSpace(one), creds)
		if err != nil {
			_ = client.Close()
			return nil, err
		}
		made.reached.Store(true)
		client.brokers = append(client.brokers, made)
	}
	return client, nil
}

// Close ends the connection. Close producers and consumers before.
func (c *Client) Close() error {
	var wrong error
	for _, one := range c.all() {
		one.lanes.close()
		wrong = errors.Join(wrong, one.connection.Close())
	}
	return wrong
}

// context is of a call; one that follows is answered with the broker that serves the topic.
func (c *Client) context(ctx context.Context, follows bool) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, c.headers...)
	if follows {
		ctx = metadata.AppendToOutgoingContext(ctx, followsHeader, "1")
	}
	return ctx
}

// followed calls again while the topic is another broker's, or on its way there: what was answered
// with Elsewhere was not carried out.
func (c *Client) followed(ctx context.Context, call func() error) error {
	return c.again(ctx, call, func(wrong *Error) bool { return wrong.Number == NumberElsewhere })
}

// patiently calls again, too, while no broker answers: for what may be done twice.
func (c *Client) patiently(ctx context.Context, call func() error) error {
	return c.again(ctx, call, func(wrong *Error) bool {
		return wrong.CanRetry() && wrong.Number != NumberResourceExhausted
	})
}

func (c *Client) again(ctx context.Context, call func() error, may func(*Error) bool) error {
	until := time.Now().Add(c.retryFor)
	for failures := 0; ; failures++ {
		err := call()
		var known *Error
		if !errors.As(err, &known) || !may(known) || time.Now().After(until) {
			return err
		}
		select {
		case <-time.After(max(pause(failures), min(known.RetryAfter(), time.Second))):
		case <-ctx.Done():
			return err
		}
	}
}

// Action is an administrative call: a JSON object in, a JSON object out. It is made once.
func (c *Client) Action(ctx context.Context, name string, body map[string]any) (map[string]any, error) {
	asked := c.broker()
	ctx, done := c.attended(ctx, asked)
	defer done()
	answer, err := c.act(ctx, asked, name, body, false)
	if err != nil {
		wrong := because(ctx, err)
		c.leave(asked, wrong)
		return nil, wrong
	}
	return answer, nil
}

// actionOf is an action about a topic, that may be carried out twice, by the broker of the topic.
func (c *Client) actionOf(
	ctx context.Context, topic, name string, body map[string]any,
) (answer map[string]any, err error) {
	err = c.patiently(ctx, func() (err error) {
		asked, follows := c.route(topic)
		attended, done := c.attended(ctx, asked)
		defer done()
		if answer, err = c.act(attended, asked, name, body, follows); err == nil {
			return nil
		}
		wrong := because(attended, err)
		c.learn(topic, asked, wrong)
		return wrong
	})
	return answer, err
}

// repeated is an Action that may be carried out twice.
func (c *Client) repeated(
	ctx context.Context, name string, body map[string]any,
) (answer map[string]any, err error) {
	err = c.patiently(ctx, func() (err error) {
		answer, err = c.Action(ctx, name, body)
		return err
	})
	return answer, err
}

// act asks one broker.
func (c *Client) act(
	ctx context.Context, asked *broker, name string, body map[string]any, follows bool,
) (map[string]any, error) {
	if body == nil {
		body = map[string]any{}
	}
	content, err := json.Marshal(body)
	if err != nil {
		return nil, badRequest("body", "values that JSON can hold", err.Error())
	}
	ctx, cancel := context.WithCancel(c.context(ctx, follows))
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
	_, err := c.repeated(ctx, "create_topic", body)
	return err
}

// Peek looks at messages without leasing them. The query has the fields of docs/wire.md, such as
// limit, ids or keys.
func (c *Client) Peek(
	ctx context.Context, topic string, query map[string]any,
) (found []*Message, err error) {
	err = c.patiently(ctx, func() (err error) {
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
	asked := c.broker()
	ctx, done := c.attended(c.context(ctx, false), asked)
	defer done()
	found, err := peeked(asked.flight.DoGet(ctx, &flight.Ticket{Ticket: content}))
	if err != nil {
		wrong := because(ctx, err)
		c.leave(asked, wrong)
		return nil, wrong
	}
	return found, nil
}

func peeked(stream flight.FlightService_DoGetClient, err error) ([]*Message, error) {
	if err != nil {
		return nil, err
	}
	reader, err := flight.NewRecordReader(stream)
	if err != nil {
		return nil, err
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
		return nil, err
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
	answer, err := c.write(ctx, topic, map[string]any{"topic": topic, "op": op}, batch)
	if err != nil {
		return nil, err
	}
	return answer.statusesOf(len(changes)), nil
}

// stageAcks acks by id and attempt in a transaction, where the same ack may be staged twice.
func (c *Client) stageAcks(
	ctx context.Context, topic, transaction string, messages []*Message,
) (statuses []Status, err error) {
	batch := settleBatch(messages)
	defer batch.Release()
	command := map[string]any{"topic": topic, "op": "ack", "transaction": transaction}
	err = c.patiently(ctx, func() error {
		answer, err := c.writeOnce(ctx, topic, command, batch)
		if err == nil {
			statuses = answer.statusesOf(len(messages))
		}
		return err
	})
	return statuses, err
}

// write sends one batch about a topic on a stream of its own. If the connection breaks, whether the
// batch was carried out is unknown: the error says Unavailable.
func (c *Client) write(
	ctx context.Context, topic string, command map[string]any, batch arrow.RecordBatch,
) (answer *reply, err error) {
	err = c.followed(ctx, func() (err error) {
		answer, err = c.writeOnce(ctx, topic, command, batch)
		return err
	})
	return answer, err
}

func (c *Client) writeOnce(
	ctx context.Context, topic string, command map[string]any, batch arrow.RecordBatch,
) (*reply, error) {
	asked, follows := c.route(topic)
	ctx, done := c.attended(c.context(ctx, follows), asked)
	defer done()
	answer, err := written(ctx, asked, command, batch)
	if err == nil && answer.err != nil {
		err = answer.err
	}
	if err != nil {
		wrong := because(ctx, err)
		c.learn(topic, asked, wrong)
		return nil, wrong
	}
	return answer, nil
}

func written(
	ctx context.Context, asked *broker, command map[string]any, batch arrow.RecordBatch,
) (*reply, error) {
	stream, err := asked.flight.DoPut(ctx)
	if err != nil {
		return nil, err
	}
	writer := flight.NewRecordWriter(stream, ipc.WithSchema(batch.Schema()))
	writer.SetFlightDescriptor(commandDescriptor(command))
	// A failure to write is told by the end of the stream, which has the broker's words.
	if err := writer.Write(batch); err == nil {
		_ = writer.Close()
		_ = stream.CloseSend()
	}
	result, err := stream.Recv()
	if err == io.EOF {
		return nil, unavailable("the stream ended before its reply")
	}
	if err != nil {
		return nil, err
	}
	frame, err := decode(result.AppMetadata)
	if err != nil {
		return nil, err
	}
	answer, is := frame.(*reply)
	if !is {
		return nil, broken("a REPLY, got: %T", frame)
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
