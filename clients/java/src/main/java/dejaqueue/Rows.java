package dejaqueue;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.UInt2Vector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.MapVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;

/** Messages as rows of record batches, and back. Columns are found by name. */
final class Rows {
    private static final ArrowType INT64 = new ArrowType.Int(64, true);
    private static final ArrowType UINT16 = new ArrowType.Int(16, false);
    private static final ArrowType TEXT = ArrowType.Utf8.INSTANCE;

    private static Field field(String name, ArrowType type, boolean nullable, Field... children) {
        return new Field(name, new FieldType(nullable, type, null), List.of(children));
    }

    static final Schema SEND = new Schema(List.of(
            field("payload", ArrowType.Binary.INSTANCE, false),
            field("due", INT64, false),
            field("key", TEXT, true),
            field("group", TEXT, true),
            field("priority", UINT16, false),
            field("tags", ArrowType.List.INSTANCE, true, field("item", TEXT, true)),
            field("headers", new ArrowType.Map(false), true,
                    field("entries", ArrowType.Struct.INSTANCE, false,
                            field("key", TEXT, false), field("value", TEXT, true))),
            field("expires", INT64, true)));
    static final Schema SETTLE =
            new Schema(List.of(field("id", INT64, false), field("attempts", UINT16, false)));

    private Rows() {}

    static void setText(VarCharVector column, int row, String text) {
        if (text.isEmpty()) {
            column.setNull(row);
        } else {
            column.setSafe(row, text.getBytes(StandardCharsets.UTF_8));
        }
    }

    static void fillSend(VectorSchemaRoot root, List<Message> messages) {
        // Arrow's own guess is thousands of rows: 400 KB for one message.
        root.getFieldVectors().forEach(column -> column.setInitialCapacity(messages.size()));
        root.allocateNew();
        ListVector tags = (ListVector) root.getVector("tags");
        MapVector headers = (MapVector) root.getVector("headers");
        VarCharVector tagTexts = (VarCharVector) tags.getDataVector();
        StructVector entries = (StructVector) headers.getDataVector();
        VarCharVector names = (VarCharVector) entries.getChildrenFromFields().get(0);
        VarCharVector values = (VarCharVector) entries.getChildrenFromFields().get(1);
        for (int row = 0; row < messages.size(); row++) {
            Message message = messages.get(row);
            ((VarBinaryVector) root.getVector("payload")).setSafe(row, message.payload);
            ((BigIntVector) root.getVector("due")).setSafe(row, message.dueMs);
            setText((VarCharVector) root.getVector("key"), row, message.key);
            setText((VarCharVector) root.getVector("group"), row, message.group);
            ((UInt2Vector) root.getVector("priority")).setSafe(row, message.priority);
            if (!message.tags.isEmpty()) {
                int at = tags.startNewValue(row);
                for (String tag : message.tags) {
                    tagTexts.setSafe(at++, tag.getBytes(StandardCharsets.UTF_8));
                }
                tags.endValue(row, message.tags.size());
            }
            if (!message.headers.isEmpty()) {
                int at = headers.startNewValue(row);
                for (Map.Entry<String, String> one : message.headers.entrySet()) {
                    entries.setIndexDefined(at);
                    names.setSafe(at, one.getKey().getBytes(StandardCharsets.UTF_8));
                    values.setSafe(at++, one.getValue().getBytes(StandardCharsets.UTF_8));
                }
                headers.endValue(row, message.headers.size());
            }
            if (message.expiresMs != 0) {
                ((BigIntVector) root.getVector("expires")).setSafe(row, message.expiresMs);
            }
        }
        root.setRowCount(messages.size());
    }

    static VectorSchemaRoot settle(BufferAllocator memory, List<Message> messages) {
        VectorSchemaRoot root = VectorSchemaRoot.create(SETTLE, memory);
        root.allocateNew();
        for (int row = 0; row < messages.size(); row++) {
            ((BigIntVector) root.getVector("id")).setSafe(row, messages.get(row).id);
            ((UInt2Vector) root.getVector("attempts")).setSafe(row, messages.get(row).attempts);
        }
        root.setRowCount(messages.size());
        return root;
    }

    static VectorSchemaRoot changes(BufferAllocator memory, List<Client.Change> changes, boolean withDue) {
        boolean byKey = !changes.get(0).key().isEmpty();
        List<Field> fields = new ArrayList<>();
        fields.add(byKey ? field("key", TEXT, true) : field("id", INT64, true));
        if (withDue) {
            fields.add(field("due", INT64, false));
        }
        VectorSchemaRoot root = VectorSchemaRoot.create(new Schema(fields), memory);
        root.allocateNew();
        for (int row = 0; row < changes.size(); row++) {
            if (byKey) {
                setText((VarCharVector) root.getVector("key"), row, changes.get(row).key());
            } else {
                ((BigIntVector) root.getVector("id")).setSafe(row, changes.get(row).id());
            }
            if (withDue) {
                ((BigIntVector) root.getVector("due")).setSafe(row, changes.get(row).dueMs());
            }
        }
        root.setRowCount(changes.size());
        return root;
    }

    /** The messages of a DELIVERY or PEEK; they do not hold the batch's memory. */
    static List<Message> messages(VectorSchemaRoot root) {
        List<Message> found = new ArrayList<>();
        for (int row = 0; row < root.getRowCount(); row++) {
            Message message = new Message();
            for (FieldVector column : root.getFieldVectors()) {
                if (!column.isNull(row)) {
                    read(message, column.getName(), column.getObject(row));
                }
            }
            found.add(message);
        }
        return found;
    }

    private static void read(Message message, String name, Object value) {
        switch (name) {
            case "id" -> message.id = (Long) value;
            case "due" -> message.dueMs = (Long) value;
            case "attempts" -> message.attempts = (Character) value;
            case "priority" -> message.priority = (Character) value;
            case "payload" -> message.payload = (byte[]) value;
            case "key" -> message.key = value.toString();
            case "group" -> message.group = value.toString();
            case "tags" -> {
                List<String> tags = new ArrayList<>();
                ((List<?>) value).forEach(tag -> tags.add(String.valueOf(tag)));
                message.tags = tags;
            }
            case "headers" -> {
                Map<String, String> headers = new HashMap<>();
                for (Object entry : (List<?>) value) {
                    Map<?, ?> pair = (Map<?, ?>) entry;
                    headers.put(String.valueOf(pair.get("key")), String.valueOf(pair.get("value")));
                }
                message.headers = headers;
            }
            default -> { } // a later broker's
        }
    }
}
