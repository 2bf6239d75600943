package dejaqueue

// Which broker of a cluster serves a topic. Whoever is asked by a client that follows tells it
// (docs/wire.md), and the client goes there itself. Topics in shards are left to the brokers, any of
// which puts them together, and so are those whose broker cannot be reached from here.

import (
	"context"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

const (
	followsHeader = "x-dejaq-follows"

	// toldMost is how many brokers are known that the address does not name.
	toldMost = 64
	// unreachedFor is how long a broker that could not be reached is left to the others.
	unreachedFor = time.Minute

	// Whoever has waited for an answer so long asks the broker for a sign of life …
	silentAfter = 5 * time.Second
	// … for which it has so long.
	signMost = 5 * time.Second
	lookEach = time.Second
	// A broker that gave none is asked at once when somebody waits for it again, and has less time:
	// whoever comes next does not wait anew. One that answers is waited for as before.
	silentAgainAfter = 100 * time.Millisecond
	signAgainMost    = 2 * time.Second
)

// broker is one address.
type broker struct {
	url     string
	address string // host:port
	host    string
	flight  flight.Client
	// connection is closed in place of flight, which panics when it is called after that.
	connection *grpc.ClientConn
	lanes      lanes

	reached        atomic.Bool // it has answered, or the client's address names it
	asking         sync.Mutex
	unreachedUntil time.Time // under asking

	lost atomic.Bool // it gave no sign of life when it was asked last
}

// routes are a client's brokers, and which of them serves what.
type routes struct {
	creds  credentials.TransportCredentials
	scheme string
	stays  bool // brokers pass calls on, whoever serves the topic

	mutex    sync.Mutex
	brokers  []*broker // that may be asked about any topic
	at       int       // which of them is
	told     map[string]*broker
	homes    map[string]*broker // of topics
	passedOn map[string]bool    // topics that are left to the brokers
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
	place := net.JoinHostPort(parsed.Hostname(), port)
	connection, err := grpc.NewClient(
		"passthrough:///"+place,
		grpc.WithTransportCredentials(secured),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(bytesMax), grpc.MaxCallSendMsgSize(bytesMax),
		),
		grpc.WithConnectParams(connectParams),
	)
	if err != nil {
		return nil, badRequest("url", "an address that can be reached", err.Error())
	}
	return &broker{
		url: parsed.Scheme + "://" + place, address: place, host: parsed.Hostname(),
		flight: flight.NewClientFromConn(connection, nil), connection: connection,
	}, nil
}

// broker is whom to ask about nothing in particular.
func (r *routes) broker() *broker {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.brokers[r.at]
}

// leave has the next broker be asked if what went wrong at this one may be for its being away.
func (r *routes) leave(from *broker, wrong *Error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if wrong.Number == NumberUnavailable && len(r.brokers) > 1 && r.brokers[r.at] == from {
		r.at = (r.at + 1) % len(r.brokers)
	}
}

// route is whom to ask about a topic, and whether as a client that follows. It waits for the sign of
// life of a broker that it was told of just now.
func (c *Client) route(topic string) (*broker, bool) {
	r := &c.routes
	r.mutex.Lock()
	at, home := r.brokers[r.at], r.homes[topic]
	follows := !r.stays && topic != "" && !r.passedOn[topic]
	r.mutex.Unlock()
	switch {
	case !follows:
		return at, false
	case home == nil:
		return at, true
	case c.reaches(home):
		return home, true
	}
	return at, false
}

// learn takes over what a call about a topic ended with; true if the client knows where to go, or will.
func (c *Client) learn(topic string, from *broker, wrong *Error) bool {
	r := &c.routes
	if wrong.Number != NumberElsewhere {
		r.mutex.Lock()
		if wrong.Number == NumberUnavailable && r.homes[topic] == from {
			delete(r.homes, topic)
		}
		r.mutex.Unlock()
		r.leave(from, wrong)
		return true
	}
	spread, _ := wrong.Fields["spread"].(float64)
	address, _ := wrong.Fields["url"].(string)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.stays || topic == "" || r.passedOn[topic] {
		return false
	}
	if spread > 1 {
		r.passedOn[topic] = true
		return false
	}
	if address == "" { // nobody's at the moment
		delete(r.homes, topic)
		return true
	}
	home := r.toldOf(address)
	if home == nil {
		r.passedOn[topic] = true
		return false
	}
	r.homes[topic] = home
	return home.mayBeReached()
}

// toldOf is called under the mutex: the broker of an address that another one told of; nil = it is no
// place to go to.
func (r *routes) toldOf(told string) *broker {
	scheme, _, _ := strings.Cut(told, "://")
	if scheme != r.scheme { // with TLS nothing goes in the clear
		return nil
	}
	parsed, err := url.Parse(told)
	if err != nil {
		return nil
	}
	place := net.JoinHostPort(parsed.Hostname(), parsed.Port())
	for _, known := range r.brokers {
		if known.address == place {
			return known
		}
	}
	if known := r.told[place]; known != nil {
		return known
	}
	if len(r.told) >= toldMost {
		return nil
	}
	made, err := brokerOf(told, r.creds)
	if err != nil {
		return nil
	}
	r.told[place] = made
	return made
}

// all are the brokers that there are connections to.
func (r *routes) all() []*broker {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	found := append([]*broker{}, r.brokers...)
	for _, one := range r.told {
		if !one.reached.Load() {
			found = append(found, one)
		}
	}
	return found
}

// mayBeReached tells that nobody has found out that it cannot.
func (b *broker) mayBeReached() bool {
	if b.reached.Load() || !b.asking.TryLock() {
		return true
	}
	defer b.asking.Unlock()
	return !time.Now().Before(b.unreachedUntil)
}

// reaches asks a broker that another one told of for a sign of life, once: its address may be one that
// only brokers reach.
func (c *Client) reaches(home *broker) bool {
	if home.reached.Load() {
		return true
	}
	home.asking.Lock()
	defer home.asking.Unlock()
	if home.reached.Load() {
		return true
	}
	if time.Now().Before(home.unreachedUntil) {
		return false
	}
	if c.isSilent(home) {
		home.unreachedUntil = time.Now().Add(unreachedFor)
		return false
	}
	c.routes.mutex.Lock()
	defer c.routes.mutex.Unlock()
	home.reached.Store(true)
	c.routes.brokers = append(c.routes.brokers, home)
	return true
}

// patience is how long an answer is waited for before the broker is asked for a sign of life.
func (b *broker) patience() time.Duration {
	if b.lost.Load() {
		return silentAgainAfter
	}
	return silentAfter
}

// signMost is how long it has to give one.
func (b *broker) signMost() time.Duration {
	if b.lost.Load() {
		return signAgainMost
	}
	return signMost
}

// isSilent asks a broker for a sign of life, waits for it, and remembers whether one came.
func (c *Client) isSilent(asked *broker) bool {
	ctx, cancel := context.WithTimeout(context.Background(), asked.signMost())
	defer cancel()
	_, err := c.act(ctx, asked, "clock", nil, false)
	silent := err != nil && errorOf(err).Number == NumberUnavailable
	asked.lost.Store(silent)
	return silent
}

// attended is a context for one call, which ends when the broker falls silent: such a connection does
// not break by itself for minutes. What a call that ended so ended with is `because`.
func (c *Client) attended(ctx context.Context, asked *broker) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for {
			select {
			case <-time.After(asked.patience()):
			case <-ctx.Done():
				return
			}
			if c.isSilent(asked) {
				cancel(asked.silent())
				return
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// silent is what ends what waits for a broker that gives no sign of life.
func (b *broker) silent() *Error {
	wrong := unavailable("the broker at %s does not answer; the outcome is unknown", b.url)
	wrong.silent = true
	return wrong
}

// because is what an error of a call means that had an attended context.
func because(ctx context.Context, err error) *Error {
	if known, is := context.Cause(ctx).(*Error); is {
		return known
	}
	return errorOf(err)
}

// signs are of a stream that waits for answers. Its own mutex is held for moments: whoever writes to
// the stream may wait for a broker that is silent.
type signs struct {
	mutex   sync.Mutex
	heard   time.Time
	waiting bool
}

// waits is told that something was sent which is answered.
func (s *signs) waits() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.waiting {
		s.waiting, s.heard = true, time.Now()
	}
}

// hears is told of an answer, and whether others are waited for.
func (s *signs) hears(waiting bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.waiting, s.heard = waiting, time.Now()
}

// areMissingSince tells that nothing was heard since a time, or longer, and something is waited for.
func (s *signs) areMissingSince(at time.Time) bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.waiting && s.heard.Before(at)
}

// attend returns when no more signs come from a broker, which was asked for one; or when it is over.
func (c *Client) attend(asked *broker, of *signs, over <-chan struct{}) bool {
	for {
		select {
		case <-time.After(min(lookEach, asked.patience())):
		case <-over:
			return false
		}
		// What was answered while the question was under way, and waits again, stays.
		began := time.Now()
		if of.areMissingSince(began.Add(-asked.patience())) && c.isSilent(asked) && of.areMissingSince(began) {
			return true
		}
	}
}

// isPassedOn tells that a topic is left to the brokers.
func (r *routes) isPassedOn(topic string) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.passedOn[topic]
}
