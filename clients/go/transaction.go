package dejaqueue

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// sequenceBits are the low bits of an id; above them is the partition.
const sequenceBits = 47

// Transaction is sends and acks that count together, when it is committed, or never.
type Transaction struct {
	client *Client
	topic  string // which keeps its decision
	name   string

	mutex        sync.Mutex
	producers    map[string]*Producer
	participants map[string]bool
	wrong        error // something was not staged for sure: it cannot be committed
}

// Begin begins a transaction, whose decision the topic keeps. It is aborted after the timeout.
func (c *Client) Begin(ctx context.Context, topic string, timeout time.Duration) (*Transaction, error) {
	body := map[string]any{"topic": topic, "timeout_ms": timeout.Milliseconds()}
	answer, err := c.actionOf(ctx, topic, "begin_transaction", body)
	if err != nil {
		return nil, err
	}
	name, _ := answer["transaction"].(string)
	return &Transaction{
		client: c, topic: topic, name: name, producers: map[string]*Producer{}, participants: map[string]bool{},
	}, nil
}

// Send stages messages.
func (t *Transaction) Send(ctx context.Context, topic string, messages ...*Message) (*Sent, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	producer := t.producers[topic]
	if producer == nil {
		producer = t.client.producer(map[string]any{"topic": topic, "transaction": t.name})
		t.producers[topic] = producer
	}
	sent, err := producer.Send(ctx, messages...)
	if err != nil {
		t.wrong = err
		return nil, err
	}
	t.note(topic, sent.IDs)
	return sent, nil
}

// Ack stages acks of messages that a consumer received from the topic.
func (t *Transaction) Ack(ctx context.Context, consumer *Consumer, messages ...*Message) ([]Status, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	statuses, err := t.client.stageAcks(ctx, consumer.topic, t.name, messages)
	if err != nil {
		t.wrong = err
		return nil, err
	}
	ids := make([]int64, len(messages))
	for row, message := range messages {
		ids[row] = message.ID
		if statuses[row] != OK {
			t.wrong = &Error{
				Number: NumberRefused, Name: "Refused",
				Text: fmt.Sprintf("an acked message had lost its lease (%s)", statuses[row]),
			}
		}
	}
	t.note(consumer.topic, ids)
	consumer.mutex.Lock()
	consumer.leave(messages)
	consumer.mutex.Unlock()
	return statuses, nil
}

func (t *Transaction) note(topic string, ids []int64) {
	for _, id := range ids {
		if id >= 0 {
			t.participants[fmt.Sprintf("%s/%d", topic, id>>sequenceBits)] = true
		}
	}
}

// Commit has all of it count. Call it again if the answer is lost: it will be the same.
func (t *Transaction) Commit(ctx context.Context) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.wrong != nil {
		return t.wrong
	}
	return t.end(ctx, "commit_transaction")
}

// Abort forgets all of it.
func (t *Transaction) Abort(ctx context.Context) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.end(ctx, "abort_transaction")
}

func (t *Transaction) end(ctx context.Context, action string) error {
	for _, producer := range t.producers {
		producer.Close()
	}
	participants := []string{}
	for participant := range t.participants {
		participants = append(participants, participant)
	}
	body := map[string]any{"transaction": t.name, "participants": participants}
	_, err := t.client.actionOf(ctx, t.topic, action, body)
	return err
}
