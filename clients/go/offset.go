package dejaqueue

// The broker's clock, seen from here. Times are microseconds; an offset is the broker's clock less
// the client's.

import "time"

const (
	samplesKept = 16
	driftPPM    = 50
	// brokersApartUS is twice what the clock of a broker that takes topics may be off.
	brokersApartUS = 1_000_000
	unknown     = -1
)

var started = time.Now()

// nowUS is UTC in microseconds by a clock that does not jump: the wall clock of the start, and what
// has elapsed since.
func nowUS() int64 { return started.UnixMicro() + time.Since(started).Microseconds() }

type sample struct{ offset, err, at int64 }

func (s sample) errorAt(now int64) int64 { return s.err + (now-s.at)*driftPPM/1_000_000 }

type clockOffset struct {
	samples []sample
	// reached is a time that the broker's clock has reached for sure: it stood in a DELIVERY.
	reached int64
}

func (c *clockOffset) addPong(sent, received, broker int64) {
	trip := max(received-sent, 0)
	c.samples = append(c.samples, sample{broker - (sent + trip/2), (trip + 1) / 2, received})
	if len(c.samples) > samplesKept {
		c.samples = c.samples[1:]
	}
}

// at is the offset and its uncertainty, which is unknown before the first answer.
func (c *clockOffset) at(now int64) (offset, uncertainty int64) {
	uncertainty = unknown
	for _, one := range c.samples {
		if err := one.errorAt(now); uncertainty == unknown || err < uncertainty {
			offset, uncertainty = one.offset, err
		}
	}
	return offset, uncertainty
}

// wait is how long from now until the broker's clock is at this time for sure; 0 = it is there, and
// false if that is not known.
func (c *clockOffset) wait(dueUS, now int64) (int64, bool) {
	if dueUS <= c.reached {
		return 0, true
	}
	offset, uncertainty := c.at(now)
	if uncertainty == unknown {
		return 0, false
	}
	return max(dueUS-(now+offset-uncertainty), 0), true
}

// brokerMS is the broker's clock, as well as it is known.
func (c *clockOffset) brokerMS(now int64) int64 {
	offset, _ := c.at(now)
	return max(now+offset, c.reached) / 1000
}
