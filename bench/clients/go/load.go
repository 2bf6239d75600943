package main

import (
	"fmt"
	"sync"
	"syscall"
	"time"
)

// said is what a case came to: messages, seconds, and seconds of this program's processor time.
type said struct {
	Rows             int     `json:"rows"`
	Seconds          float64 `json:"seconds"`
	ProcessorSeconds float64 `json:"processor_seconds"`
	LateUS           []int64 `json:"late_us,omitempty"`
}

// load is senders and a consumer of one queue at a time.
type load struct {
	peer     Peer
	senders  []Sender
	consumer Consumer
	idle     time.Duration
}

func (l *load) do(asked request) (any, error) {
	switch asked.Do {
	case "make":
		return struct{}{}, l.peer.Make(asked.Queue)
	case "open":
		return struct{}{}, l.open(asked.Queue, asked.Connections)
	case "listen":
		return struct{}{}, l.listen(asked.Queue, seconds(asked.IdleSeconds))
	case "send":
		return l.send(seconds(asked.Seconds))
	case "pace":
		return l.pace(asked.PerSecond, asked.DelaysMS, asked.Rows)
	case "take":
		return l.take(asked.Rows, seconds(asked.Seconds))
	case "close":
		return struct{}{}, l.close()
	}
	return nil, fmt.Errorf("a known word, got: %q", asked.Do)
}

func seconds(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }

func processorSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // of this very process
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

// open connects so many senders, and sends a message by each that counts for nothing.
func (l *load) open(queue Queue, connections int) error {
	for range connections {
		sender, err := l.peer.Sender(queue)
		if err != nil {
			return err
		}
		l.senders = append(l.senders, sender)
		if err := sender.Send(payloadOf(warmUS)); err != nil {
			return err
		}
	}
	return nil
}

// listen connects a consumer, and takes a message, which counts for nothing; then it is warm.
func (l *load) listen(queue Queue, idle time.Duration) error {
	consumer, err := l.peer.Consumer(queue)
	if err != nil {
		return err
	}
	l.consumer, l.idle = consumer, idle
	payload, err := consumer.Next(idle)
	if err != nil {
		return err
	}
	if payload == nil {
		return fmt.Errorf("nothing came in %v", idle)
	}
	return consumer.Ack()
}

// send has each sender send one message after the other for so long.
func (l *load) send(length time.Duration) (*said, error) {
	counts, errs := make([]int, len(l.senders)), make([]error, len(l.senders))
	var ended sync.WaitGroup
	start, processor := time.Now(), processorSeconds()
	for index, sender := range l.senders {
		ended.Go(func() {
			for time.Since(start) < length {
				if errs[index] = sender.Send(payloadOf(1)); errs[index] != nil {
					return
				}
				counts[index]++
			}
		})
	}
	ended.Wait()
	found := &said{Seconds: time.Since(start).Seconds(), ProcessorSeconds: processorSeconds() - processor}
	for index, count := range counts {
		if errs[index] != nil {
			return nil, errs[index]
		}
		found.Rows += count
	}
	return found, nil
}

// pace has one sender send so many at an even rate, each with its delay in turn; none = at once.
func (l *load) pace(perSecond int, delaysMS []int64, rows int) (*said, error) {
	if len(l.senders) != 1 {
		return nil, fmt.Errorf("one sender, got: %d", len(l.senders))
	}
	sender := l.senders[0]
	start, processor := time.Now(), processorSeconds()
	for number := range rows {
		time.Sleep(time.Until(start.Add(time.Duration(number) * time.Second / time.Duration(perSecond))))
		var err error
		if len(delaysMS) > 0 {
			delayMS := delaysMS[number%len(delaysMS)]
			dueMS := nowMS() + delayMS
			err = sender.SendLater(payloadOf(1_000*dueMS), dueMS, delayMS)
		} else {
			err = sender.Send(payloadOf(nowUS()))
		}
		if err != nil {
			return nil, err
		}
	}
	return &said{
		Rows: rows, Seconds: time.Since(start).Seconds(), ProcessorSeconds: processorSeconds() - processor,
	}, nil
}

// take takes and acks so many, one by one, for so long at most, or until none comes any more.
func (l *load) take(rows int, length time.Duration) (*said, error) {
	lateUS := []int64{}
	start, processor := time.Now(), processorSeconds()
	last := start
	for {
		payload, err := l.consumer.Next(l.idle)
		if err != nil {
			return nil, err
		}
		if payload == nil {
			break
		}
		receivedUS := nowUS()
		if err := l.consumer.Ack(); err != nil {
			return nil, err
		}
		atUS := timeOf(payload)
		if atUS == warmUS {
			continue
		}
		lateUS = append(lateUS, receivedUS-atUS)
		last = time.Now()
		if len(lateUS) == rows || last.Sub(start) > length {
			if err := l.consumer.Finish(); err != nil {
				return nil, err
			}
			last = time.Now()
			break
		}
	}
	return &said{len(lateUS), last.Sub(start).Seconds(), processorSeconds() - processor, lateUS}, nil
}

// close disconnects all.
func (l *load) close() error {
	for _, sender := range l.senders {
		if err := sender.Close(); err != nil {
			return err
		}
	}
	l.senders = nil
	if l.consumer == nil {
		return nil
	}
	err := l.consumer.Close()
	l.consumer = nil
	return err
}
