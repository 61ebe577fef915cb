package onceflow.tools;

/**
 * Payment {@code id} of a stream that depends on the seed and the number of cards alone, so that a test can compute it,
 * too. All integers have 64 bits and wrap, {@code >>} is unsigned:
 *
 * <pre>
 * mix(z):  z = (z ^ (z &gt;&gt; 30)) * 0xBF58476D1CE4E5B9
 *          z = (z ^ (z &gt;&gt; 27)) * 0x94D049BB133111EB
 *          z ^ (z &gt;&gt; 31)                                  SplitMix64's last step
 * draw(j)  mix(seed + (2 * id + j + 1) * 0x9E3779B97F4A7C15)
 * card     ((draw(0) &gt;&gt; 32) * cards) &gt;&gt; 32, four digits at least
 * amount   1 + ((draw(1) &gt;&gt; 32) * 10000) &gt;&gt; 32        cents
 * at       1700000000000 + id                            milliseconds since 1970
 * </pre>
 */
final class Payment {
    private static final long AMOUNT_MAX = 10_000;
    private static final long FIRST_AT = 1_700_000_000_000L;

    final long id;
    final long card;
    private final long amount;

    Payment(long seed, long cards, long id) {
        this.id = id;
        card = scale(draw(seed, id, 0), cards);
        amount = 1 + scale(draw(seed, id, 1), AMOUNT_MAX);
    }

    String json() {
        return String.format("{\"card\":\"card-%04d\",\"amount\":%d,\"id\":%d,\"at\":%d}", card, amount, id, FIRST_AT + id);
    }

    private static long draw(long seed, long id, int number) {
        long z = seed + (2 * id + number + 1) * 0x9E3779B97F4A7C15L;
        z = (z ^ (z >>> 30)) * 0xBF58476D1CE4E5B9L;
        z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
        return z ^ (z >>> 31);
    }

    private static long scale(long draw, long limit) {
        return ((draw >>> 32) * limit) >>> 32;
    }
}
