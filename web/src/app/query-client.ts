import { QueryClient } from "@tanstack/react-query";
import { ApiError } from "@/api/client";

/** What a second try cannot mend is not tried again. */
function isFinal(error: unknown): boolean {
  return error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429;
}

export const queryClient = new QueryClient({
  defaultOptions: {
    queries: {
      retry: (count, error) => !isFinal(error) && count < 2,
      retryDelay: (attempt) => Math.min(8000, 500 * 2 ** attempt),
      staleTime: 5000,
      refetchOnWindowFocus: true,
    },
  },
});
