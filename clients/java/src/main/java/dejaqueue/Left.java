package dejaqueue;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;

/**
 * Messages that a consumer gives back when it closes.
 *
 * @param released nobody looked at them: they are not due before they were
 */
record Left(boolean released, long argumentMs, List<Message> messages) {
    /** Those that were held, and those that were handed over and not settled. */
    static List<Left> of(Collection<Message> held, Collection<Message> handed, long brokerMs) {
        long argumentMs = 0;
        for (Message one : held) {
            // One more for what is cut off, and one for what is not known of the broker's clock.
            argumentMs = Math.max(argumentMs, one.dueMs - brokerMs + 2);
        }
        List<Left> found = new ArrayList<>();
        if (!held.isEmpty()) {
            found.add(new Left(true, argumentMs, List.copyOf(held)));
        }
        if (!handed.isEmpty()) {
            found.add(new Left(false, 0, List.copyOf(handed)));
        }
        return found;
    }

    /** As a SETTLE of a stream, to which nobody waits for an answer. */
    byte[] frame() {
        long[] ids = messages.stream().mapToLong(one -> one.id).toArray();
        int[] attempts = messages.stream().mapToInt(one -> one.attempts).toArray();
        int fate = released ? Frames.RELEASED : 0;
        return Frames.settleRows(Frames.NACK, fate, 0, argumentMs, ids, attempts, "");
    }
}
