package onceflow.tools;

import java.util.Map;
import java.util.TreeMap;

/** Options of the form {@code --name value}. Each is taken once; what is left over is a mistake. */
final class Options {
    /** The command line is wrong. */
    static final class Bad extends Exception {
        private static final long serialVersionUID = 1;

        Bad(String message) {
            super(message);
        }
    }

    private final Map<String, String> left = new TreeMap<>();

    Options(String[] words) throws Bad {
        for (int i = 0; i < words.length; i += 2) {
            if (!words[i].startsWith("--") || i + 1 == words.length) {
                throw new Bad("expected --name value: given=" + words[i]);
            }
            if (left.put(words[i].substring(2), words[i + 1]) != null) {
                throw new Bad("given twice: " + words[i]);
            }
        }
    }

    String text(String name) throws Bad {
        String value = left.remove(name);
        if (value == null) {
            throw new Bad("missing: --" + name);
        }
        return value;
    }

    String text(String name, String otherwise) {
        String value = left.remove(name);
        return value == null ? otherwise : value;
    }

    /** A number of at least {@code least}; without a default if {@code otherwise} is null. */
    long number(String name, long least, Long otherwise) throws Bad {
        String value = otherwise == null ? text(name) : text(name, otherwise.toString());
        try {
            long number = Long.parseLong(value);
            if (number >= least) {
                return number;
            }
        } catch (NumberFormatException notANumber) {
            // Said below, together with numbers that are too small.
        }
        throw new Bad("--" + name + " is not a number of at least " + least + ": given=" + value);
    }

    boolean choice(String name, String otherwise, String other) throws Bad {
        String value = text(name, otherwise);
        if (!value.equals(otherwise) && !value.equals(other)) {
            throw new Bad("--" + name + " is " + otherwise + " or " + other + ": given=" + value);
        }
        return value.equals(other);
    }

    void end() throws Bad {
        if (!left.isEmpty()) {
            throw new Bad("no such option: --" + left.keySet().iterator().next());
        }
    }
}
