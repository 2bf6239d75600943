package dejaqueue

// A consumer's stream of Flight: frames beside record batches.

import (
	"context"
	"io"

	"github.com/apache/arrow-go/v18/arrow/flight"
)

// flightConsume is a consumer's stream of Flight.
type flightConsume struct {
	stream flight.FlightService_DoExchangeClient
}

// say sends a frame. That it failed is told by the end of the stream.
func (f flightConsume) say(frame []byte) { _ = f.stream.Send(&flight.FlightData{AppMetadata: frame}) }

func (c *Consumer) serveFlight(asked *broker, follows bool) (*Error, bool) {
	ctx, cancel := context.WithCancelCause(c.client.context(context.Background(), follows))
	defer cancel(nil)
	stream, err := asked.flight.DoExchange(ctx)
	if err == nil {
		err = stream.Send(&flight.FlightData{FlightDescriptor: commandDescriptor(c.command)})
	}
	if err != nil && err != io.EOF {
		wrong := errorOf(err)
		c.client.learn(c.topic, asked, wrong)
		return wrong, false
	}
	if !c.begin(flightConsume{stream}) {
		return unavailable("the consumer is closed"), false
	}
	over := make(chan struct{})
	defer close(over)
	go c.ping(over)
	go c.attend(asked, func(wrong *Error) { cancel(wrong) }, over)
	frames := &frameReader{stream: stream, consumer: c}
	wrong, delivered := frames.read()
	wrong = because(ctx, wrong)
	c.endedWhole(frames.whole)
	c.client.learn(c.topic, asked, wrong)
	return wrong, delivered
}

// frameReader takes frames without a batch out of the stream, and leaves the others to Arrow.
type frameReader struct {
	stream   flight.FlightService_DoExchangeClient
	consumer *Consumer
	heads    bool
	whole    bool
	ended    *Error
}

// Recv is the next message that has a schema or a batch.
func (f *frameReader) Recv() (*flight.FlightData, error) {
	for {
		content, err := f.stream.Recv()
		if err != nil {
			return nil, err
		}
		f.heads = true
		if len(content.DataHeader) > 0 {
			return content, nil
		}
		if len(content.AppMetadata) == 0 {
			continue
		}
		frame, err := decode(content.AppMetadata)
		if err != nil {
			return nil, err
		}
		switch frame := frame.(type) {
		case *Error:
			f.ended = frame
		case ended:
			return nil, io.EOF
		default:
			f.consumer.heard(frame)
		}
	}
}

func (f *frameReader) read() (*Error, bool) {
	ended := func(err error) (*Error, bool) {
		if f.ended != nil {
			return f.ended, f.heads
		}
		if err == nil || err == io.EOF {
			f.whole = true
			return unavailable("the broker ended the stream"), f.heads
		}
		return errorOf(err), f.heads
	}
	reader, err := flight.NewRecordReader(f)
	if err != nil {
		return ended(err)
	}
	defer reader.Release()
	for reader.Next() {
		frame, err := decode(reader.LatestAppMetadata())
		if err != nil {
			return ended(err)
		}
		head, is := frame.(*delivery)
		if !is {
			return ended(broken("a DELIVERY with a batch, got: %T", frame))
		}
		rows, err := messagesOf(reader.RecordBatch())
		if err != nil {
			return ended(err)
		}
		f.consumer.delivered(head, rows)
	}
	return ended(reader.Err())
}
