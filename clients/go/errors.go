package dejaqueue

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The numbers of errors that a caller may want to tell apart; docs/reference/errors.md lists all.
const (
	NumberBadRequest        = 10
	NumberTopicUnknown      = 11
	NumberRefused           = 20
	NumberTopicExists       = 21
	NumberTryLater          = 30
	NumberResourceExhausted = 31
	NumberUnavailable       = 32
	NumberElsewhere         = 33
	NumberUnauthenticated   = 51
	NumberForbidden         = 52
)

// numberFenced is of a broker that lost a partition while it worked on a call.
const numberFenced = 40

// Error is what a broker answered, or Unavailable where none did.
type Error struct {
	Number int            `json:"number"` // stable: decide by it
	Name   string         `json:"error"`  // for people
	Text   string         `json:"text"`   // what was wrong, the limit, and the value
	Fields map[string]any `json:"fields"`
	Code   codes.Code     `json:"-"` // gRPC's, OK if the error came in a frame

	silent bool // we say so, of a broker that gave no sign of life
}

// Error is the text.
func (e *Error) Error() string {
	if e.Name == "" {
		return e.Text
	}
	return e.Name + ": " + e.Text
}

// CanRetry tells that the same call may succeed later without a change.
func (e *Error) CanRetry() bool {
	switch e.Number {
	case NumberTryLater, NumberResourceExhausted, NumberUnavailable, NumberElsewhere:
		return true
	}
	return e.Code == codes.Unavailable || e.Code == codes.Aborted || e.Code == codes.ResourceExhausted
}

// RetryAfter is how long the broker asks to wait; 0 = it does not say.
func (e *Error) RetryAfter() time.Duration {
	after, _ := e.Fields["retry_after_ms"].(float64)
	return time.Duration(after) * time.Millisecond
}

func unavailable(form string, values ...any) *Error {
	return &Error{
		Number: NumberUnavailable, Name: "Unavailable", Text: fmt.Sprintf(form, values...),
		Code: codes.Unavailable,
	}
}

// broken says that the broker sent what the wire does not have.
func broken(form string, values ...any) *Error {
	return &Error{Number: 90, Name: "InternalError", Text: "the broker did not send " + fmt.Sprintf(form, values...)}
}

// errorOf is what an error of gRPC means. One without the broker's line comes from the connection:
// whether the call was carried out is unknown.
func errorOf(err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	state := status.Convert(err)
	if _, told, is := strings.Cut(state.Message(), "\ndejaq:"); is {
		found, wrong := errorOfJSON([]byte(told))
		if wrong != nil {
			return errorOf(wrong)
		}
		found.Code = state.Code()
		return found
	}
	return unavailable("the broker is out of reach: %s", state.Message())
}
