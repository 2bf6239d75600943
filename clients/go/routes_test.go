package dejaqueue

import (
	"strings"
	"testing"
	"time"
)

func elsewhere(url string, spread float64) *Error {
	return &Error{
		Number: NumberElsewhere, Name: "Elsewhere", Fields: map[string]any{"url": url, "spread": spread},
	}
}

func dialled(t *testing.T, address string, options Options) *Client {
	t.Helper()
	client, err := Dial(address, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestAClientGoesToTheBrokerOfATopic(t *testing.T) {
	client := dialled(t, "dejaq://a:1,b:2", Options{})
	first, second := client.brokers[0], client.brokers[1]
	if at, follows := client.route("t"); at != first || !follows {
		t.Fatal(at, follows)
	}
	if !client.learn("t", first, elsewhere("dejaq://b:2", 0)) {
		t.Error("it does not know where to go")
	}
	if at, follows := client.route("t"); at != second || !follows {
		t.Error("it does not go there", at.address, follows)
	}
	if at, _ := client.route("u"); at != first || client.broker() != first {
		t.Error("another topic went along", at.address)
	}
	client.learn("t", second, elsewhere("", 0))
	if at, _ := client.route("t"); at != first {
		t.Error("it does not ask where the topic went", at.address)
	}
	client.learn("t", first, elsewhere("dejaq://b:2", 0))
	client.learn("t", second, unavailable("away"))
	if at, _ := client.route("t"); at != first {
		t.Error("it stays with a broker that is away", at.address)
	}
}

func TestTopicsInShardsAreLeftToTheBrokers(t *testing.T) {
	client := dialled(t, "dejaq://a:1", Options{})
	first := client.brokers[0]
	if client.learn("t", first, elsewhere("dejaq://b:2", 3)) {
		t.Error("it goes to one of them")
	}
	if at, follows := client.route("t"); at != first || follows || !client.isPassedOn("t") {
		t.Error(at.address, follows)
	}
}

func TestAClientThatStaysOrCannotGoHasCallsPassedOn(t *testing.T) {
	for _, client := range []*Client{
		dialled(t, "dejaq://a:1", Options{Stays: true}), dialled(t, "dejaqs://a:1", Options{}),
	} {
		if client.learn("t", client.brokers[0], elsewhere("dejaq://b:2", 0)) {
			t.Error("it goes there")
		}
		if at, follows := client.route("t"); at != client.brokers[0] || follows {
			t.Error(at.address, follows)
		}
	}
}

func TestABrokerThatCannotBeReachedIsLeftToTheOthersForAWhile(t *testing.T) {
	client := dialled(t, "dejaq://a:1", Options{})
	first := client.brokers[0]
	client.learn("t", first, elsewhere("dejaq://127.0.0.1:9", 0))
	if at, follows := client.route("t"); at != first || follows {
		t.Error(at.address, follows)
	}
	if client.learn("t", first, elsewhere("dejaq://127.0.0.1:9", 0)) {
		t.Error("it tries again at once")
	}
	client.told["127.0.0.1:9"].unreachedUntil = time.Now()
	if !client.learn("t", first, elsewhere("dejaq://127.0.0.1:9", 0)) {
		t.Error("it never tries again")
	}
}

func TestABrokerThatLostAPartitionIsToACallerOneThatIsAway(t *testing.T) {
	told := []byte(`{"number": 40, "error": "Fenced", "text": "the last record is not 3", "fields": {}}`)
	found, err := errorOfJSON(told)
	if err != nil || found.Number != NumberUnavailable || !found.CanRetry() {
		t.Error(found, err)
	}
}

func TestAClientThatIsClosedAnswersWhoeverStillAsks(t *testing.T) {
	client := dialled(t, "dejaq://127.0.0.1:9", Options{RetryFor: time.Millisecond})
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := client.Action(t.Context(), "clock", nil)
	if errorOf(err).Number != NumberUnavailable {
		t.Error(err)
	}
	consumer := client.Consume("t", ConsumeOptions{})
	time.Sleep(time.Millisecond) // it tries to open a stream
	if err := consumer.Close(); err != nil {
		t.Error(err)
	}
}

func TestWhatWasAnsweredSinceTheQuestionBeganStays(t *testing.T) {
	of := &signs{}
	of.waits()
	time.Sleep(time.Millisecond)
	began := time.Now()
	if !of.areMissingSince(began) {
		t.Error("nothing was heard")
	}
	of.hears(true)
	if of.areMissingSince(began) {
		t.Error("it was answered, and waits anew")
	}
	of.hears(false)
	if of.areMissingSince(time.Now().Add(time.Hour)) {
		t.Error("it waits for nothing")
	}
}

func TestABrokerThatGaveNoSignOfLifeIsAskedSoonUntilItGivesOne(t *testing.T) {
	client := dialled(t, "dejaq://127.0.0.1:9", Options{}) // nobody is there
	asked := client.brokers[0]
	if asked.patience() != silentAfter || asked.signMost() != signMost {
		t.Error(asked.patience(), asked.signMost())
	}
	if !client.isSilent(asked) || asked.patience() != silentAgainAfter || asked.signMost() != signAgainMost {
		t.Error("it has its time again", asked.patience(), asked.signMost())
	}
	if wrong := asked.silent(); !strings.Contains(wrong.Text, "dejaq://127.0.0.1:9") || !wrong.CanRetry() {
		t.Error(wrong)
	}
}

func TestWhatWasTriedForItsTimeFailsWithTheSilentBroker(t *testing.T) {
	client := dialled(t, "dejaq://a:1", Options{RetryFor: time.Nanosecond})
	made := client.link(map[string]any{"topic": "t"}, true)
	fake := &fakeChannel{of: client.brokers[0]}
	made.channel, made.connecting = fake, true // nobody connects but this test
	made.gatherMany(1)
	sending := fake.sent[0]
	made.lost(fake, client.brokers[0].silent())
	<-sending.done
	if sending.err == nil || !sending.err.silent {
		t.Error(sending.err)
	}
}
