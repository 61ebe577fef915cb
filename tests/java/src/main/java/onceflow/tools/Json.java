package onceflow.tools;

import java.util.Map;
import java.util.StringJoiner;

/** Writes JSON strings and objects of strings. */
final class Json {
    private Json() {
    }

    static String quote(String text) {
        if (text == null) {
            return "null";
        }
        StringBuilder out = new StringBuilder(text.length() + 2).append('"');
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || Character.isSurrogate(c)) {
                // A lone surrogate has no UTF-8 form; as an escape the line stays readable.
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        return out.append('"').toString();
    }

    static String object(Map<String, String> fields) {
        StringJoiner out = new StringJoiner(",", "{", "}");
        fields.forEach((name, value) -> out.add(quote(name) + ":" + quote(value)));
        return out.toString();
    }
}
