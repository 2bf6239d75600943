package dejaqueue;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** The producers of a client that have a stream of Flight. */
final class Flights {
    /**
     * So many streams stay open, more only while something is on its way on all of them. Each is a
     * thread of its broker, which lets one key have 409 (its setting quotas.streams_max).
     */
    private static final int MOST = 64;

    /** The one that was used longest ago first. */
    private final Set<FlightBatches> order = new LinkedHashSet<>();

    /** A producer uses its stream; its lock may be held. */
    void use(FlightBatches by) {
        List<FlightBatches> unused = new ArrayList<>();
        synchronized (this) {
            keep(by);
            Iterator<FlightBatches> oldest = order.iterator();
            while (order.size() > MOST) {
                unused.add(oldest.next());
                oldest.remove();
            }
        }
        unused.forEach(one -> one.later(one::rest));
    }

    /** It needs its stream still, although there are too many. */
    synchronized void keep(FlightBatches one) {
        order.remove(one);
        order.add(one);
    }

    /** It has none any more. */
    synchronized void leave(FlightBatches by) {
        order.remove(by);
    }
}
