package onceflow.tools;

import java.util.Arrays;

/** Runs one tool. The exit code is 0 only if it did all it was asked for. */
public final class Main {
    private static final String HELP = String.join(System.lineSeparator(),
        "topic    --name-server A --topic T [--queues 4]",
        "           creates the topic and waits until clients see all its queues",
        "produce  --name-server A --topic T --records N [--seed 42] [--cards 1000] [--first-id 0]",
        "         [--spread id|card] [--batch 200] [--rate R] [--out FILE]",
        "           writes N payments, one JSON object each, in order per queue, each until SEND_OK;",
        "           the last line says what was sent again and which copies lie in the topic",
        "consume  --name-server A --topic T --out FILE [--body utf8|base64]",
        "           writes each message that the topic holds now as one JSON line",
        "All take --acl-user U --acl-password P.");

    private Main() {
    }

    /** The tool's name, then its options. */
    public static void main(String[] words) {
        int code = 1;
        try {
            code = run(words);
        } catch (Options.Bad bad) {
            System.err.println("java tools: " + bad.getMessage() + System.lineSeparator() + HELP);
            code = 2;
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
        // The client's threads would keep the JVM alive.
        System.exit(code);
    }

    private static int run(String[] words) throws Exception {
        if (words.length == 0 || words[0].equals("help")) {
            System.out.println(HELP);
            return 0;
        }
        Options options = new Options(Arrays.copyOfRange(words, 1, words.length));
        switch (words[0]) {
            case "topic":
                return Topic.run(options);
            case "produce":
                return Produce.run(options);
            case "consume":
                return Consume.run(options);
            default:
                throw new Options.Bad("no such tool: " + words[0]);
        }
    }
}
