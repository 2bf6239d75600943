package dejaqueue

import (
	"testing"
	"time"
)

func TestAClientGoesToTheNextAddressWhenABrokerIsAway(t *testing.T) {
	client, err := Dial("dejaq://a:1, [::1]:2", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	first, second := client.brokers[0], client.brokers[1]
	if first.host != "a" || second.host != "::1" || client.broker() != first {
		t.Fatal(first.host, second.host)
	}
	client.leave(first, &Error{Number: NumberBadRequest})
	client.leave(first, &Error{Number: NumberElsewhere})
	if client.broker() != first {
		t.Error("it left a broker that answers")
	}
	client.leave(first, unavailable("away"))
	client.leave(first, unavailable("told by another stream"))
	if client.broker() != second {
		t.Error("it did not leave a broker that is away, or left the next one, too")
	}
	client.leave(second, unavailable("away, too"))
	if client.broker() != first {
		t.Error("it did not come back to the first")
	}
	for _, wrong := range []string{"dejaq://", "dejaq://a,,b", "http://a", "a:7464", "dejaq://a, b c"} {
		if _, err := Dial(wrong, Options{}); errorOf(err).Number != NumberBadRequest {
			t.Error(wrong, err)
		}
	}
}

func TestWhatNoBrokerSettledIsSettledAgainByIDAndAttempt(t *testing.T) {
	said := &saidFrames{}
	consumer := &Consumer{
		client: &Client{retryFor: time.Minute}, wake: make(chan struct{}), credit: 100, stream: said,
		atHand: map[handed]*lease{}, waiting: map[uint32]chan *reply{}, acks: ackPipe{onWay: map[uint32]ackBatch{}},
	}
	message := &Message{ID: 7, Attempts: 1, lease: &lease{partition: 2, id: 81, rows: 1}}
	answered := make(chan error, 1)
	go func() {
		statuses, err := consumer.Ack(t.Context(), message)
		if err == nil && statuses[0] != OK {
			err = unavailable("%s", statuses[0])
		}
		answered <- err
	}()
	answer := func(number uint32, wrong *Error) {
		for waits := false; !waits; time.Sleep(time.Millisecond) {
			consumer.mutex.Lock()
			_, waits = consumer.waiting[number]
			consumer.mutex.Unlock()
		}
		consumer.heard(&reply{number: number, rows: 1, err: wrong})
	}
	answer(1, &Error{Number: NumberElsewhere, Name: "Elsewhere"})
	answer(2, nil)
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	if len(said.settles) != 2 || said.settles[0] != 0 || said.settles[1] != 1 {
		t.Error("not by its lease, and then by its id", said.settles)
	}
	answered = make(chan error, 1)
	go func() {
		_, err := consumer.Ack(t.Context(), message)
		answered <- err
	}()
	answer(3, unavailable("some of it was done"))
	if err := <-answered; errorOf(err).Number != NumberUnavailable {
		t.Error("its outcome is unknown", err)
	}
}

func TestABrokerThatAnswersThatItStopsIsLeft(t *testing.T) {
	client, err := Dial("dejaq://a:1,b:2", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	made := client.link(map[string]any{"topic": "t"}, true)
	fake := &fakeChannel{of: client.brokers[0]}
	made.channel, made.connecting = fake, true // nobody connects but this test
	made.gatherMany(1)
	made.replied(fake, 1, &reply{number: 1, rows: 1, err: unavailable("the broker is stopping")})
	if !fake.dropped || client.broker() != client.brokers[1] {
		t.Error("it is asked again")
	}
}
