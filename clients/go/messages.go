package dejaqueue

// Messages as rows of record batches, and back. Columns are found by name: a later broker may send
// more of them.

import (
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// DefaultPriority is the priority of a message that has none of its own; 0 is most urgent.
const DefaultPriority = 32768

// Message is a message to send, or one that was received.
type Message struct {
	Payload  []byte
	Due      time.Time         // not before this; the zero time = at once
	Key      string            // the producer's own id; "" = none
	Group    string            // "" = none
	Priority *uint16           // nil = DefaultPriority
	Tags     []string          // at most 16
	Headers  map[string]string // carried untouched
	Expires  time.Time         // the zero time = never

	ID       int64  // given by the broker
	Attempts uint16 // deliveries so far

	lease *lease
}

// lease is what the rows of one delivery are under.
type lease struct {
	partition  uint32
	id         int64
	rows       int
	endMS      int64
	generation int
}

var (
	tagsType    = arrow.ListOf(arrow.BinaryTypes.String)
	headersType = arrow.MapOf(arrow.BinaryTypes.String, arrow.BinaryTypes.String)

	sendSchema = arrow.NewSchema([]arrow.Field{
		{Name: "payload", Type: arrow.BinaryTypes.Binary},
		{Name: "due", Type: arrow.PrimitiveTypes.Int64},
		{Name: "key", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "group", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "priority", Type: arrow.PrimitiveTypes.Uint16},
		{Name: "tags", Type: tagsType, Nullable: true},
		{Name: "headers", Type: headersType, Nullable: true},
		{Name: "expires", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	}, nil)
	settleSchema = arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "attempts", Type: arrow.PrimitiveTypes.Uint16},
	}, nil)
	idField  = arrow.Field{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}
	keyField = arrow.Field{Name: "key", Type: arrow.BinaryTypes.String, Nullable: true}
	dueField = arrow.Field{Name: "due", Type: arrow.PrimitiveTypes.Int64}
)

func appendText(column array.Builder, text string) {
	if text == "" {
		column.AppendNull()
	} else {
		column.(*array.StringBuilder).Append(text)
	}
}

func instantMS(instant time.Time) int64 {
	if instant.IsZero() {
		return 0
	}
	return instant.UnixMilli()
}

func sendBatch(messages []*Message) arrow.RecordBatch {
	rows := array.NewRecordBuilder(memory.DefaultAllocator, sendSchema)
	defer rows.Release()
	for _, message := range messages {
		rows.Field(0).(*array.BinaryBuilder).Append(message.Payload)
		rows.Field(1).(*array.Int64Builder).Append(instantMS(message.Due))
		appendText(rows.Field(2), message.Key)
		appendText(rows.Field(3), message.Group)
		priority := uint16(DefaultPriority)
		if message.Priority != nil {
			priority = *message.Priority
		}
		rows.Field(4).(*array.Uint16Builder).Append(priority)
		tags := rows.Field(5).(*array.ListBuilder)
		tags.Append(len(message.Tags) > 0)
		for _, tag := range message.Tags {
			tags.ValueBuilder().(*array.StringBuilder).Append(tag)
		}
		headers := rows.Field(6).(*array.MapBuilder)
		headers.Append(len(message.Headers) > 0)
		for name, value := range message.Headers {
			headers.KeyBuilder().(*array.StringBuilder).Append(name)
			headers.ItemBuilder().(*array.StringBuilder).Append(value)
		}
		if message.Expires.IsZero() {
			rows.Field(7).AppendNull()
		} else {
			rows.Field(7).(*array.Int64Builder).Append(message.Expires.UnixMilli())
		}
	}
	return rows.NewRecordBatch()
}

func settleBatch(messages []*Message) arrow.RecordBatch {
	rows := array.NewRecordBuilder(memory.DefaultAllocator, settleSchema)
	defer rows.Release()
	for _, message := range messages {
		rows.Field(0).(*array.Int64Builder).Append(message.ID)
		rows.Field(1).(*array.Uint16Builder).Append(message.Attempts)
	}
	return rows.NewRecordBatch()
}

func changesBatch(changes []Change, withDue bool) arrow.RecordBatch {
	byKey := changes[0].Key != ""
	fields := []arrow.Field{idField}
	if byKey {
		fields[0] = keyField
	}
	if withDue {
		fields = append(fields, dueField)
	}
	rows := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer rows.Release()
	for _, change := range changes {
		if byKey {
			appendText(rows.Field(0), change.Key)
		} else {
			rows.Field(0).(*array.Int64Builder).Append(change.ID)
		}
		if withDue {
			rows.Field(1).(*array.Int64Builder).Append(instantMS(change.Due))
		}
	}
	return rows.NewRecordBatch()
}

// messagesOf reads a DELIVERY or PEEK. What is returned does not hold the batch's memory.
func messagesOf(batch arrow.RecordBatch) ([]*Message, error) {
	found := make([]*Message, batch.NumRows())
	for row := range found {
		found[row] = &Message{}
	}
	for place, field := range batch.Schema().Fields() {
		column := batch.Column(place)
		read, known := readers[field.Name]
		if !known {
			continue
		}
		for row := range found {
			if column.IsNull(row) {
				continue
			}
			if !read(found[row], column, row) {
				return nil, broken("a column %s of a known type, got: %s", field.Name, field.Type)
			}
		}
	}
	return found, nil
}

func textOf(column arrow.Array, row int) string {
	if texts, is := column.(*array.String); is {
		// A copy: the batch's memory is given back.
		return string([]byte(texts.Value(row)))
	}
	return ""
}

var readers = map[string]func(*Message, arrow.Array, int) bool{
	"id": func(m *Message, column arrow.Array, row int) bool {
		values, is := column.(*array.Int64)
		if is {
			m.ID = values.Value(row)
		}
		return is
	},
	"due": func(m *Message, column arrow.Array, row int) bool {
		values, is := column.(*array.Int64)
		if is {
			m.Due = time.UnixMilli(values.Value(row)).UTC()
		}
		return is
	},
	"attempts": func(m *Message, column arrow.Array, row int) bool {
		values, is := column.(*array.Uint16)
		if is {
			m.Attempts = values.Value(row)
		}
		return is
	},
	"priority": func(m *Message, column arrow.Array, row int) bool {
		values, is := column.(*array.Uint16)
		if is {
			priority := values.Value(row)
			m.Priority = &priority
		}
		return is
	},
	"payload": func(m *Message, column arrow.Array, row int) bool {
		values, is := column.(*array.Binary)
		if is {
			m.Payload = append([]byte{}, values.Value(row)...)
		}
		return is
	},
	"key": func(m *Message, column arrow.Array, row int) bool {
		m.Key = textOf(column, row)
		return true
	},
	"group": func(m *Message, column arrow.Array, row int) bool {
		m.Group = textOf(column, row)
		return true
	},
	"tags": func(m *Message, column arrow.Array, row int) bool {
		values, is := column.(*array.List)
		if is {
			start, end := values.ValueOffsets(row)
			for at := start; at < end; at++ {
				m.Tags = append(m.Tags, textOf(values.ListValues(), int(at)))
			}
		}
		return is
	},
	"headers": func(m *Message, column arrow.Array, row int) bool {
		values, is := column.(*array.Map)
		if is {
			start, end := values.ValueOffsets(row)
			m.Headers = make(map[string]string, end-start)
			for at := start; at < end; at++ {
				m.Headers[textOf(values.Keys(), int(at))] = textOf(values.Items(), int(at))
			}
		}
		return is
	},
}
