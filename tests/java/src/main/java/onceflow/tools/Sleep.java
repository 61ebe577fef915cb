package onceflow.tools;

/** Sleeps; nobody interrupts these threads. */
final class Sleep {
    private Sleep() {
    }

    static void millis(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }
}
