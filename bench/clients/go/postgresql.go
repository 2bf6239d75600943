package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// postgreSQL has a table for each queue: INSERT, and DELETE … FOR UPDATE SKIP LOCKED whose commit is
// the ack. A consumer that finds nothing sleeps until the next due time, or until it is notified.
type postgreSQL struct{ url string }

func newPostgreSQL(url, _ string) (Peer, error) { return &postgreSQL{url}, nil }

func (p *postgreSQL) Make(queue Queue) error {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	made := fmt.Sprintf("CREATE TABLE %s (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "+
		"due_ms BIGINT NOT NULL, payload BYTEA NOT NULL)", queue.Name)
	if _, err := conn.Exec(ctx, made); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, fmt.Sprintf("CREATE INDEX ON %s (due_ms)", queue.Name))
	return err
}

func (p *postgreSQL) Sender(queue Queue) (Sender, error) {
	conn, err := pgx.Connect(context.Background(), p.url)
	put := fmt.Sprintf("INSERT INTO %s (due_ms, payload) VALUES ($1, $2)", queue.Name)
	if queue.IsWaitedOn { // a notification takes a lock of the whole database at its commit
		put = fmt.Sprintf("WITH put AS (%s RETURNING 1) SELECT pg_notify('%s', '') FROM put", put, queue.Name)
	}
	return &rowSender{conn, put}, err
}

func (p *postgreSQL) Consumer(queue Queue) (Consumer, error) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return nil, err
	}
	take := strings.ReplaceAll("DELETE FROM $Q WHERE id = (SELECT id FROM $Q WHERE due_ms <= $1 "+
		"ORDER BY due_ms LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING payload", "$Q", queue.Name)
	next := fmt.Sprintf("SELECT min(due_ms) FROM %s", queue.Name)
	_, err = conn.Exec(ctx, "LISTEN "+queue.Name)
	return &rowConsumer{conn: conn, take: take, next: next}, err
}

type rowSender struct {
	conn *pgx.Conn
	put  string
}

func (s *rowSender) Send(payload []byte) error { return s.SendLater(payload, nowMS(), 0) }

func (s *rowSender) SendLater(payload []byte, dueMS, _ int64) error {
	_, err := s.conn.Exec(context.Background(), s.put, dueMS, payload)
	return err
}

func (s *rowSender) Close() error { return s.conn.Close(context.Background()) }

type rowConsumer struct {
	conn       *pgx.Conn
	take, next string
	open       pgx.Tx // while a message is worked on
}

func (c *rowConsumer) Next(idle time.Duration) ([]byte, error) {
	ctx, end := context.Background(), time.Now().Add(idle)
	for {
		tx, err := c.conn.Begin(ctx)
		if err != nil {
			return nil, err
		}
		var payload []byte
		err = tx.QueryRow(ctx, c.take, nowMS()).Scan(&payload)
		if err == nil {
			c.open = tx
			return payload, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return nil, err
		}
		var dueMS *int64
		if err := tx.QueryRow(ctx, c.next).Scan(&dueMS); err != nil {
			return nil, err
		}
		if err := tx.Commit(ctx); err != nil {
			return nil, err
		}
		left := time.Until(end)
		if left <= 0 {
			return nil, nil
		}
		if dueMS != nil {
			left = min(left, max(0, time.Until(time.UnixMilli(*dueMS))))
		}
		if err := c.sleep(left); err != nil {
			return nil, err
		}
	}
}

// sleep returns at the next notification, or when it is over.
func (c *rowConsumer) sleep(length time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), length)
	defer cancel()
	_, err := c.conn.WaitForNotification(ctx)
	if err != nil && !pgconn.Timeout(err) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

func (c *rowConsumer) Ack() error { return c.open.Commit(context.Background()) }

func (c *rowConsumer) Finish() error { return nil }

func (c *rowConsumer) Close() error { return c.conn.Close(context.Background()) }
