package onceflow.tools;

import java.util.concurrent.locks.LockSupport;

/** Lets payment {@code id} go when it is due: a number a second, over all queues together. */
final class Pace {
    private final long rate;
    private final long first;
    private final long began = System.nanoTime();

    /** A rate of 0 waits for nothing. */
    Pace(long rate, long first) {
        this.rate = rate;
        this.first = first;
    }

    void await(long id) {
        if (rate == 0) {
            return;
        }
        long due = began + (long) ((id - first) * 1e9 / rate);
        for (long left = due - System.nanoTime(); left > 0; left = due - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }
}
