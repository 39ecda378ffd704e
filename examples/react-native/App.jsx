// A screen with one text field. Never run on a phone.
import { Paths } from "expo-file-system";
import { useEffect, useRef, useState } from "react";
import { AppState, Button, SafeAreaView, Text, TextInput } from "react-native";
import { openAssistant } from "./assistant.js";
import { device } from "./device.js";

const ADDRESS = "https://example.org/phone-bundle"; // of your server
const STORE = `${Paths.document.uri}models/voice-commands`; // not the cache folder, which the system may empty

export default function App() {
  const [status, setStatus] = useState("");
  const [request, setRequest] = useState("");
  const [answer, setAnswer] = useState("");
  const assistant = useRef(null);

  async function open() {
    const onProgress = (loaded, total) => setStatus(`Getting the model: ${Math.round((100 * loaded) / total)}%`);
    try {
      assistant.current ??= await openAssistant(ADDRESS, STORE, device, { onProgress });
      setStatus("Ready");
    } catch (error) {
      setStatus(error.message);
    }
  }

  async function ask() {
    setAnswer("");
    try {
      const text = await assistant.current.ask(request, (piece) => setAnswer((before) => before + piece));
      if (text === null) setAnswer("I am not sure. Please say it another way.");
    } catch (error) {
      setStatus(error.message);
    }
  }

  useEffect(() => {
    open();
    const watch = AppState.addEventListener("change", async (state) => {
      if (state === "active") return open();
      await assistant.current?.close();
      assistant.current = null;
    });
    return () => watch.remove();
  }, []);

  return (
    <SafeAreaView>
      <Text accessibilityLiveRegion="polite">{status}</Text>
      <TextInput accessibilityLabel="Request" value={request} onChangeText={setRequest} onSubmitEditing={ask} />
      <Button title="Ask" onPress={ask} disabled={status !== "Ready" || !request.trim()} />
      <Text accessibilityLiveRegion="polite">{answer}</Text>
    </SafeAreaView>
  );
}
