package dejaqueue;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.FilterInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;

/**
 * A connection to the broker's HTTP port that has become a lane: frames behind their length. One
 * thread may read while another writes; `close` ends both, whatever they wait for.
 */
final class LaneSocket {
    /** To connect and to be let in: somebody waits who could send by Flight meanwhile. */
    private static final int CONNECT_MS_MAX = 2_000;

    private static final int HEAD_BYTES_MAX = 1 << 16;
    private static final int BUFFER_BYTES = 1 << 16;

    private final Socket raw;
    private final Socket talking;
    private final InputStream in;
    private final OutputStream out;
    private volatile long heardNs = System.nanoTime();

    /**
     * Where a lane is, and who wants it.
     *
     * @param host as the address has it
     * @param name the broker's, until it stops
     * @param apiKey empty = none
     * @param tls null = plain
     */
    record Place(String host, int port, String name, String apiKey, SSLContext tls) {}

    private LaneSocket(Socket raw, Place place) throws IOException {
        this.raw = raw;
        raw.setTcpNoDelay(true);
        raw.setKeepAlive(true);
        raw.setSoTimeout(CONNECT_MS_MAX);
        if (place.tls == null) {
            talking = raw;
        } else {
            String named = place.host.replaceAll("[\\[\\]]", "");
            var factory = place.tls.getSocketFactory();
            SSLSocket secured = (SSLSocket) factory.createSocket(raw, named, place.port, true);
            SSLParameters wanted = secured.getSSLParameters();
            wanted.setEndpointIdentificationAlgorithm("HTTPS");
            secured.setSSLParameters(wanted);
            secured.startHandshake();
            talking = secured;
        }
        in = new BufferedInputStream(new Heard(talking.getInputStream()), BUFFER_BYTES);
        out = new BufferedOutputStream(talking.getOutputStream(), BUFFER_BYTES);
    }

    /** Notes when bytes came: a long frame on a slow line is no silence. */
    private final class Heard extends FilterInputStream {
        Heard(InputStream from) {
            super(from);
        }

        @Override
        public int read(byte[] into, int at, int length) throws IOException {
            int found = super.read(into, at, length);
            heardNs = System.nanoTime();
            return found;
        }
    }

    /** Connects, and asks for the lane. */
    static LaneSocket connect(Place place) throws IOException {
        long untilNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(CONNECT_MS_MAX);
        IOException why = new IOException("no address of " + place.host);
        for (InetAddress address : InetAddress.getAllByName(place.host)) {
            Socket raw = new Socket();
            try {
                long leftMs = Math.max(TimeUnit.NANOSECONDS.toMillis(untilNs - System.nanoTime()), 1);
                raw.connect(new InetSocketAddress(address, place.port), (int) leftMs);
            } catch (IOException unreachable) {
                raw.close();
                why = unreachable;
                continue;
            }
            try {
                LaneSocket found = new LaneSocket(raw, place);
                found.upgrade(place, untilNs);
                found.talking.setSoTimeout(0);
                return found;
            } catch (IOException | RuntimeException refused) {
                raw.close();
                throw refused;
            }
        }
        throw why;
    }

    private void upgrade(Place place, long untilNs) throws IOException {
        StringBuilder asked = new StringBuilder("GET /v1/lane HTTP/1.1\r\nhost: ");
        asked.append(place.host).append(':').append(place.port);
        asked.append("\r\nconnection: upgrade\r\nupgrade: dejaq-lane\r\nx-dejaq-lane: ");
        asked.append(place.name).append("\r\n");
        if (!place.apiKey.isEmpty()) {
            asked.append("authorization: Bearer ").append(place.apiKey).append("\r\n");
        }
        out.write(asked.append("\r\n").toString().getBytes(StandardCharsets.UTF_8));
        out.flush();
        ByteArrayOutputStream answer = new ByteArrayOutputStream();
        int lines = 0; // how many of the bytes of an empty line came last
        while (lines < 4) {
            int one = in.read();
            if (one < 0 || answer.size() > HEAD_BYTES_MAX || System.nanoTime() > untilNs) {
                throw new IOException("the broker did not answer the upgrade");
            }
            answer.write(one);
            boolean goesOn = one == (lines % 2 == 0 ? '\r' : '\n');
            lines = goesOn ? lines + 1 : one == '\r' ? 1 : 0;
        }
        String head = answer.toString(StandardCharsets.ISO_8859_1);
        if (!head.startsWith("HTTP/1.1 101 ")) {
            throw new IOException("the lane was refused: " + head.lines().findFirst().orElse(""));
        }
    }

    /** How long a read may take; 0 = for ever. */
    void setPatience(int ms) throws IOException {
        talking.setSoTimeout(ms);
    }

    /** The next frame; null = none comes any more. By one thread. */
    byte[] read() throws IOException {
        byte[] length = in.readNBytes(4);
        if (length.length < 4) {
            return null;
        }
        int bytes = ByteBuffer.wrap(length).order(ByteOrder.LITTLE_ENDIAN).getInt();
        if (bytes < 0) {
            throw new IOException("a frame of more than 2 GiB");
        }
        byte[] frame = in.readNBytes(bytes); // takes memory for what has come
        return frame.length < bytes ? null : frame;
    }

    /** Writes a frame, at the latest with `flush`. By one thread at a time. */
    void write(byte[] frame) throws IOException {
        out.write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(frame.length).array());
        out.write(frame);
    }

    void flush() throws IOException {
        out.flush();
    }

    /** When something came last, as System.nanoTime has it. */
    long heardNs() {
        return heardNs;
    }

    /** Twice is fine. The plain one: that of TLS would wait for a thread that cannot write. */
    void close() {
        try {
            raw.close();
        } catch (IOException over) {
            // It has ended by itself.
        }
    }
}
