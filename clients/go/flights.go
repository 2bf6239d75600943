package dejaqueue

import (
	"container/list"
	"sync"
)

// flightsMost is how many producers' streams of Flight a client keeps open, more only while something
// is on its way on all of them. Each is a thread of its broker, which lets one key have 409 (its
// setting quotas.streams_max).
const flightsMost = 64

// flights are the producers that have a stream of Flight.
type flights struct {
	mutex sync.Mutex
	order list.List // of *link, the one that was used longest ago first
	place map[*link]*list.Element
}

// use tells that a producer uses its stream. The mutex of the producer may be held.
func (f *flights) use(by *link) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.put(by)
	for f.order.Len() > flightsMost {
		oldest := f.order.Front().Value.(*link)
		f.remove(oldest)
		go oldest.rest()
	}
}

// keep tells that a producer needs its stream still, although there are too many.
func (f *flights) keep(one *link) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.put(one)
}

// put is called under the mutex.
func (f *flights) put(one *link) {
	if at := f.place[one]; at != nil {
		f.order.MoveToBack(at)
		return
	}
	if f.place == nil {
		f.place = map[*link]*list.Element{}
	}
	f.place[one] = f.order.PushBack(one)
}

// leave tells that a producer has no stream any more.
func (f *flights) leave(by *link) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.remove(by)
}

// remove is called under the mutex.
func (f *flights) remove(one *link) {
	if at := f.place[one]; at != nil {
		f.order.Remove(at)
		delete(f.place, one)
	}
}
