package dejaqueue

// Frames of the express lane, as docs/wire.md has them: each comes behind its length. A SEND has
// what messages have, without a record batch.

import (
	"encoding/binary"
	"unicode/utf8"
)

const (
	frameSend   = 9
	frameOpen   = 10
	frameOpened = 11

	sendHasDues   = 1
	sendHasFields = 2

	fieldKey      = 1
	fieldGroup    = 2
	fieldPriority = 4
	fieldTags     = 8
	fieldHeaders  = 16
	fieldExpires  = 32

	lengthBytes   = 4
	sendHeadBytes = 16
	deliveryBytes = headBytes + 32
)

// laneRows is what a SEND has behind its address; the same however often it is sent.
type laneRows struct {
	rows    int
	flags   uint16
	content []byte
}

// encodeRows makes them. Without due times, messages are due on arrival; with them, one that has none is
// due at 0, as it is in a batch.
func encodeRows(messages []*Message, hasDues bool) laneRows {
	order := binary.LittleEndian
	which, encoded := fieldsOf(messages), laneRows{rows: len(messages)}
	bytes := 8 // of what is counted for each message: most have a payload and nothing else
	for _, message := range messages {
		bytes += 12 + len(message.Payload)
	}
	content := make([]byte, 0, bytes)
	if hasDues {
		encoded.flags |= sendHasDues
		for _, message := range messages {
			content = order.AppendUint64(content, uint64(instantMS(message.Due)))
		}
	}
	var texts []byte
	if which != 0 {
		encoded.flags |= sendHasFields
		content, texts = appendFields(content, messages, which)
	}
	for _, message := range messages {
		content = order.AppendUint32(content, uint32(len(message.Payload)))
	}
	content = append(content, texts...)
	for _, message := range messages {
		content = append(content, message.Payload...)
	}
	encoded.content = content
	return encoded
}

// fieldsOf says which fields any of the messages has, besides payload and due time.
func fieldsOf(messages []*Message) uint32 {
	which := uint32(0)
	for _, message := range messages {
		if message.Key != "" {
			which |= fieldKey
		}
		if message.Group != "" {
			which |= fieldGroup
		}
		if message.Priority != nil {
			which |= fieldPriority
		}
		if len(message.Tags) > 0 {
			which |= fieldTags
		}
		if len(message.Headers) > 0 {
			which |= fieldHeaders
		}
		if !message.Expires.IsZero() {
			which |= fieldExpires
		}
	}
	return which
}

// appendFields appends what comes in front of the payloads' sizes, and makes the texts behind them.
func appendFields(content []byte, messages []*Message, which uint32) (heads, texts []byte) {
	order := binary.LittleEndian
	content = order.AppendUint32(content, which)
	if which&fieldExpires != 0 {
		for _, message := range messages {
			content = order.AppendUint64(content, uint64(instantMS(message.Expires)))
		}
	}
	if which&fieldPriority != 0 {
		for _, message := range messages {
			priority := uint16(DefaultPriority)
			if message.Priority != nil {
				priority = *message.Priority
			}
			content = order.AppendUint16(content, priority)
		}
	}
	for _, field := range []uint32{fieldKey, fieldGroup, fieldTags, fieldHeaders} {
		if which&field == 0 {
			continue
		}
		for _, message := range messages {
			before := len(texts)
			texts = appendTexts(texts, message, field)
			content = order.AppendUint32(content, uint32(len(texts)-before))
		}
	}
	return content, texts
}

func appendTexts(texts []byte, message *Message, field uint32) []byte {
	listed := func(text string) {
		texts = binary.LittleEndian.AppendUint32(texts, uint32(len(text)))
		texts = append(texts, text...)
	}
	switch field {
	case fieldKey:
		texts = append(texts, message.Key...)
	case fieldGroup:
		texts = append(texts, message.Group...)
	case fieldTags:
		for _, tag := range message.Tags {
			listed(tag)
		}
	case fieldHeaders:
		for name, value := range message.Headers {
			listed(name)
			listed(value)
		}
	}
	return texts
}

// appendSend appends a SEND behind its length.
func appendSend(to []byte, number uint32, address []byte, rows laneRows) []byte {
	order := binary.LittleEndian
	to = order.AppendUint32(to, uint32(sendHeadBytes+len(address)+len(rows.content)))
	to = append(to, wireVersion, frameSend)
	to = order.AppendUint16(to, rows.flags)
	to = order.AppendUint32(to, number)
	to = order.AppendUint32(to, uint32(rows.rows))
	to = order.AppendUint32(to, uint32(len(address)))
	to = append(to, address...)
	return append(to, rows.content...)
}

// encodeAddress says where rows go: the producer's number of the batch, its name, and the topic.
func encodeAddress(number uint32, producer, topic string) []byte {
	address := binary.LittleEndian.AppendUint32(nil, number)
	address = append(address, uint8(len(producer)))
	address = append(address, producer...)
	return append(address, topic...)
}

// encodeOpen is the frame that makes a lane a consumer's.
func encodeOpen(command []byte) []byte { return append(head(frameOpen, 0), command...) }

func withLength(to, frame []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(to, uint32(len(frame))), frame...)
}

// laneBytes is about how many bytes of a frame a message is; false if it may not come by the lane:
// texts that are no UTF-8 are refused in a batch, whose column is named.
func laneBytes(message *Message) (int, bool) {
	bytes, valid := len(message.Payload), true
	count := func(text string) {
		bytes += len(text)
		valid = valid && utf8.ValidString(text)
	}
	count(message.Key)
	count(message.Group)
	for _, tag := range message.Tags {
		count(tag)
	}
	for name, value := range message.Headers {
		count(name)
		count(value)
	}
	return bytes, valid
}
