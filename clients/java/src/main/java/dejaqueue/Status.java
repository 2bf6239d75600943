package dejaqueue;

/** What happened to one row of a batch, as docs/reference/errors.md lists it. */
public enum Status {
    OK,
    NOT_FOUND,
    LEASED,
    LEASE_LOST,
    DUPLICATE,
    KEPT,
    CHANGED,
    /** A later broker's. */
    OTHER;

    static Status of(int number) {
        return number < OTHER.ordinal() ? values()[number] : OTHER;
    }
}
