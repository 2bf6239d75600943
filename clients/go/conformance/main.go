// Command conformance does with the client what it is told, a JSON object a line, and answers each
// with a line. tests/clients has the other end, for this client and those of other languages.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"dejaqueue"
)

type row struct {
	Payload  string            `json:"payload"`
	DueMS    int64             `json:"due_ms"`
	Key      string            `json:"key"`
	Group    string            `json:"group"`
	Priority *uint16           `json:"priority"`
	Tags     []string          `json:"tags"`
	Headers  map[string]string `json:"headers"`
	// Numbers of 63 bits are texts in JSON.
	ID         string `json:"id"`
	Attempts   uint16 `json:"attempts"`
	ReceivedMS int64  `json:"received_ms"`
}

type request struct {
	Of        string         `json:"of"`
	Do        string         `json:"do"`
	URL       string         `json:"url"`
	Key       string         `json:"api_key"`
	CA        string         `json:"ca"`
	Topic     string         `json:"topic"`
	Settings  map[string]any `json:"settings"`
	Rows      []row          `json:"rows"`
	IDs       []string       `json:"ids"`
	Keys      []string       `json:"keys"`
	LeaseMS   int64          `json:"lease_ms"`
	DelayMS   int64          `json:"delay_ms"`
	Reason    string         `json:"reason"`
	Dead      bool           `json:"dead"`
	Credit    int            `json:"credit"`
	TagsAny   []string       `json:"tags_any"`
	Count     int            `json:"count"`
	WaitMS    int64          `json:"wait_ms"`
	Batches   int            `json:"batches"`
	RetryMS   int64          `json:"retry_ms"`
	TimeoutMS int64          `json:"timeout_ms"`
	Flight    bool           `json:"flight_only"`
	Stays     bool           `json:"stays"`
	Single    bool           `json:"single"`
	Mixed     bool           `json:"mixed"`
	Keyed     bool           `json:"keyed"`
	First     int            `json:"first"`
}

type driver struct {
	client    *dejaqueue.Client
	producers map[string]*dejaqueue.Producer
	consumer  *dejaqueue.Consumer
	received  map[string]*dejaqueue.Message
	tx        *dejaqueue.Transaction
}

// main has a driver for each name that requests are of: each does one at a time, all of them at the
// same time.
func main() {
	drivers := map[string]chan request{}
	var answering sync.Mutex
	answers := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	answer := func(of string, found map[string]any, err error) {
		if err != nil {
			found = map[string]any{"error": told(err)}
		}
		if found == nil {
			found = map[string]any{}
		}
		found["of"] = of
		answering.Lock()
		defer answering.Unlock()
		if err := answers.Encode(found); err != nil {
			os.Exit(1)
		}
	}
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			answer("", nil, err)
			continue
		}
		if drivers[asked.Of] == nil {
			requests := make(chan request, 16)
			drivers[asked.Of] = requests
			go drive(requests, answer)
		}
		drivers[asked.Of] <- asked
	}
}

func drive(requests chan request, answer func(string, map[string]any, error)) {
	d := &driver{producers: map[string]*dejaqueue.Producer{}, received: map[string]*dejaqueue.Message{}}
	for asked := range requests {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		found, err := d.do(ctx, asked)
		cancel()
		answer(asked.Of, found, err)
	}
}

func told(err error) map[string]any {
	var known *dejaqueue.Error
	if errors.As(err, &known) {
		return map[string]any{
			"number": known.Number, "name": known.Name, "text": known.Text, "fields": known.Fields,
			"retry": known.CanRetry(),
		}
	}
	return map[string]any{"number": 0, "name": fmt.Sprintf("%T", err), "text": err.Error()}
}

func (d *driver) do(ctx context.Context, asked request) (map[string]any, error) {
	switch asked.Do {
	case "connect":
		return d.connect(asked)
	case "create_topic":
		return map[string]any{}, d.client.CreateTopic(ctx, asked.Topic, asked.Settings)
	case "stats":
		return d.client.Action(ctx, "stats", map[string]any{"topic": asked.Topic})
	case "send":
		return sent(d.producer(asked.Topic).Send(ctx, messages(asked.Rows)...))
	case "send_each":
		return d.sendEach(ctx, asked)
	case "flood":
		return d.flood(ctx, asked)
	case "peek":
		found, err := d.client.Peek(ctx, asked.Topic, nil)
		return rows(found), err
	case "move":
		var changes []dejaqueue.Change
		for _, one := range asked.Rows {
			id, _ := strconv.ParseInt(one.ID, 10, 64)
			changes = append(changes, dejaqueue.Change{ID: id, Key: one.Key, Due: time.UnixMilli(one.DueMS)})
		}
		return statuses(d.client.Move(ctx, asked.Topic, changes))
	case "cancel":
		if len(asked.Keys) > 0 {
			return statuses(d.client.CancelKeys(ctx, asked.Topic, asked.Keys...))
		}
		var ids []int64
		for _, text := range asked.IDs {
			id, _ := strconv.ParseInt(text, 10, 64)
			ids = append(ids, id)
		}
		return statuses(d.client.Cancel(ctx, asked.Topic, ids...))
	case "consume":
		d.consumer = d.client.Consume(asked.Topic, dejaqueue.ConsumeOptions{
			Consumer: "conformance", Lease: time.Duration(asked.LeaseMS) * time.Millisecond,
			Credit: asked.Credit, TagsAny: asked.TagsAny,
		})
		return map[string]any{}, nil
	case "receive":
		return d.receive(ctx, asked)
	case "ack":
		return statuses(d.consumer.Ack(ctx, d.named(asked)...))
	case "ack_async":
		for _, message := range d.named(asked) {
			if err := d.consumer.AckAsync(ctx, message); err != nil {
				return nil, err
			}
		}
		return map[string]any{}, nil
	case "flush":
		return map[string]any{}, d.consumer.Flush(ctx)
	case "take":
		return d.take(ctx, asked)
	case "nack":
		refusal := dejaqueue.Refusal{
			Delay: time.Duration(asked.DelayMS) * time.Millisecond, Backoff: asked.DelayMS < 0,
			Reason: asked.Reason, Dead: asked.Dead,
		}
		return statuses(d.consumer.Nack(ctx, refusal, d.named(asked)...))
	case "extend":
		return statuses(d.consumer.Extend(ctx, time.Duration(asked.LeaseMS)*time.Millisecond, d.named(asked)...))
	case "close_consumer":
		return map[string]any{}, d.consumer.Close()
	case "begin":
		timeout := time.Duration(asked.TimeoutMS) * time.Millisecond
		tx, err := d.client.Begin(ctx, asked.Topic, timeout)
		d.tx = tx
		return map[string]any{}, err
	case "tx_send":
		return sent(d.tx.Send(ctx, asked.Topic, messages(asked.Rows)...))
	case "tx_ack":
		return statuses(d.tx.Ack(ctx, d.consumer, d.named(asked)...))
	case "commit":
		return map[string]any{}, d.tx.Commit(ctx)
	case "abort":
		return map[string]any{}, d.tx.Abort(ctx)
	case "close":
		for _, producer := range d.producers {
			producer.Close()
		}
		return map[string]any{}, d.client.Close()
	}
	return nil, fmt.Errorf("not known: %s", asked.Do)
}

func (d *driver) connect(asked request) (map[string]any, error) {
	options := dejaqueue.Options{
		APIKey: asked.Key, RetryFor: time.Duration(asked.RetryMS) * time.Millisecond, FlightOnly: asked.Flight,
		Stays: asked.Stays,
	}
	if asked.CA != "" {
		content, err := os.ReadFile(asked.CA)
		if err != nil {
			return nil, err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(content)
		options.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	client, err := dejaqueue.Dial(asked.URL, options)
	d.client, d.producers = client, map[string]*dejaqueue.Producer{}
	return map[string]any{}, err
}

func (d *driver) producer(topic string) *dejaqueue.Producer {
	if d.producers[topic] == nil {
		d.producers[topic] = d.client.Producer(topic)
	}
	return d.producers[topic]
}

// sendEach sends each message by a goroutine of its own, all at the same time; each has an answer.
func (d *driver) sendEach(ctx context.Context, asked request) (map[string]any, error) {
	producer := d.producer(asked.Topic)
	answers := make([]map[string]any, len(asked.Rows))
	var senders sync.WaitGroup
	for place, message := range messages(asked.Rows) {
		senders.Go(func() {
			answer, err := sent(producer.Send(ctx, message))
			if err != nil {
				answer = told(err)
			}
			answers[place] = answer
		})
	}
	senders.Wait()
	return map[string]any{"answers": answers}, nil
}

// take receives so many messages and acks each without waiting; what came, in order.
func (d *driver) take(ctx context.Context, asked request) (map[string]any, error) {
	var payloads []string
	for len(payloads) < asked.Count {
		message, err := d.consumer.Receive(ctx)
		if err == nil {
			err = d.consumer.AckAsync(ctx, message)
		}
		if err != nil {
			return nil, err
		}
		payloads = append(payloads, string(message.Payload))
		time.Sleep(time.Duration(asked.WaitMS) * time.Millisecond)
	}
	return map[string]any{"payloads": payloads}, nil
}

// flood sends batches of 10 messages by four goroutines, or each message alone by 40, or as many in
// both ways at the same time: what was answered is counted.
func (d *driver) flood(ctx context.Context, asked request) (map[string]any, error) {
	producer := d.producer(asked.Topic)
	if asked.Mixed {
		return d.floodOfBoth(ctx, asked, producer)
	}
	if asked.Single {
		return d.floodOfSingles(ctx, asked, producer)
	}
	return d.floodOfBatches(ctx, asked, producer)
}

func (d *driver) floodOfBoth(
	ctx context.Context, asked request, producer *dejaqueue.Producer,
) (map[string]any, error) {
	singles := asked
	singles.First += asked.Batches * 10
	alone := make(chan error, 1)
	go func() {
		_, err := d.floodOfSingles(ctx, singles, producer)
		alone <- err
	}()
	_, together := d.floodOfBatches(ctx, asked, producer)
	if err := errors.Join(together, <-alone); err != nil {
		return nil, err
	}
	return map[string]any{"sent": asked.Batches * 20}, nil
}

func (asked request) numbered(number int) *dejaqueue.Message {
	message := &dejaqueue.Message{Payload: fmt.Appendf(nil, "%d", asked.First+number)}
	if asked.Keyed {
		message.Key = fmt.Sprintf("k%d", asked.First+number)
	}
	return message
}

func (d *driver) floodOfBatches(
	ctx context.Context, asked request, producer *dejaqueue.Producer,
) (map[string]any, error) {
	numbers := make(chan int)
	failures := make(chan error, asked.Batches)
	var senders sync.WaitGroup
	for range 4 {
		senders.Add(1)
		go func() {
			defer senders.Done()
			for number := range numbers {
				var batch []*dejaqueue.Message
				for place := range 10 {
					batch = append(batch, asked.numbered(number*10+place))
				}
				if _, err := producer.Send(ctx, batch...); err != nil {
					failures <- err
				}
			}
		}()
	}
	for number := range asked.Batches {
		numbers <- number
		time.Sleep(time.Duration(asked.WaitMS) * time.Millisecond)
	}
	close(numbers)
	senders.Wait()
	if len(failures) > 0 {
		return nil, <-failures
	}
	return map[string]any{"sent": asked.Batches * 10}, nil
}

func (d *driver) floodOfSingles(
	ctx context.Context, asked request, producer *dejaqueue.Producer,
) (map[string]any, error) {
	const goroutines = 40
	failures := make(chan error, goroutines)
	var senders sync.WaitGroup
	for first := range goroutines {
		senders.Go(func() {
			for number := first; number < asked.Batches*10; number += goroutines {
				if _, err := producer.Send(ctx, asked.numbered(number)); err != nil {
					failures <- err
					return
				}
				time.Sleep(time.Duration(asked.WaitMS) * time.Millisecond)
			}
		})
	}
	senders.Wait()
	if len(failures) > 0 {
		return nil, <-failures
	}
	return map[string]any{"sent": asked.Batches * 10}, nil
}

func (d *driver) receive(ctx context.Context, asked request) (map[string]any, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(asked.WaitMS)*time.Millisecond)
	defer cancel()
	found := []*dejaqueue.Message{}
	var at []int64
	for len(found) < asked.Count {
		message, err := d.consumer.Receive(ctx)
		if err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				break
			}
			return nil, err
		}
		at = append(at, time.Now().UnixMilli())
		found = append(found, message)
		d.received[strconv.FormatInt(message.ID, 10)] = message
	}
	answer := rows(found)
	for place, one := range answer["rows"].([]row) {
		one.ReceivedMS = at[place]
		answer["rows"].([]row)[place] = one
	}
	return answer, nil
}

func (d *driver) named(asked request) []*dejaqueue.Message {
	var found []*dejaqueue.Message
	for _, id := range asked.IDs {
		found = append(found, d.received[id])
	}
	return found
}

func messages(rows []row) []*dejaqueue.Message {
	var found []*dejaqueue.Message
	for _, one := range rows {
		payload, _ := base64.StdEncoding.DecodeString(one.Payload)
		message := &dejaqueue.Message{
			Payload: payload, Key: one.Key, Group: one.Group, Priority: one.Priority, Tags: one.Tags,
			Headers: one.Headers,
		}
		if one.DueMS != 0 {
			message.Due = time.UnixMilli(one.DueMS)
		}
		found = append(found, message)
	}
	return found
}

func rows(messages []*dejaqueue.Message) map[string]any {
	found := []row{}
	for _, message := range messages {
		found = append(found, row{
			Payload: base64.StdEncoding.EncodeToString(message.Payload), DueMS: message.Due.UnixMilli(),
			Key: message.Key, Group: message.Group, Priority: message.Priority, Tags: message.Tags,
			Headers: message.Headers, ID: strconv.FormatInt(message.ID, 10), Attempts: message.Attempts,
		})
	}
	return map[string]any{"rows": found}
}

func sent(answer *dejaqueue.Sent, err error) (map[string]any, error) {
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for _, id := range answer.IDs {
		ids = append(ids, strconv.FormatInt(id, 10))
	}
	found, _ := statuses(answer.Statuses, nil)
	found["ids"] = ids
	return found, nil
}

func statuses(found []dejaqueue.Status, err error) (map[string]any, error) {
	names := []string{}
	for _, one := range found {
		names = append(names, one.String())
	}
	return map[string]any{"statuses": names}, err
}
